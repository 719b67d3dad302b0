# dlock_tls(<name> <plain>): gives the backend <name>, which is <plain> over TLS, its stream. Called before the backend is
# made, for which it sets DLOCK_TLS_SOURCES and DLOCK_TLS_LIBRARIES; dlock_tls_includes() is called after that.
macro(dlock_tls name plain)
  dlock_client_library(${name} DLOCK_OPENSSL libssl-dev openssl)
  set(DLOCK_TLS_SOURCES ../stream/tls.c)
  set(DLOCK_TLS_LIBRARIES PkgConfig::DLOCK_OPENSSL)
endmacro()

macro(dlock_tls_includes name plain)
  target_include_directories(dlock-${name} PRIVATE ../${plain})
  target_compile_definitions(dlock-${name} PRIVATE DLOCK_STREAM_TLS="${plain}")
endmacro()
