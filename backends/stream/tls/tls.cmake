# dlock_tls(<name> <plain>): the backend <name>, which is <plain> over TLS, gets its stream. Call it before the backend is made:
# it sets DLOCK_TLS_SOURCES and DLOCK_TLS_LIBRARIES for that, and dlock_tls_includes() comes after it.
macro(dlock_tls name plain)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(DLOCK_OPENSSL IMPORTED_TARGET openssl)
  if(NOT DLOCK_OPENSSL_FOUND)
    message(FATAL_ERROR "The ${name} backend needs OpenSSL: install the package libssl-dev, "
      "or leave ${name} out of DLOCK_BACKENDS.")
  endif()
  if("${name}" IN_LIST DLOCK_STATIC_BACKENDS AND "${plain}" IN_LIST DLOCK_STATIC_BACKENDS)
    message(FATAL_ERROR "${plain} and ${name} are built from the same files: only one of them can be in "
      "DLOCK_STATIC_BACKENDS")
  endif()
  set(DLOCK_TLS_SOURCES ../stream/tls/stream.c)
  set(DLOCK_TLS_LIBRARIES PkgConfig::DLOCK_OPENSSL)
endmacro()

macro(dlock_tls_includes name plain)
  target_include_directories(dlock-${name} PRIVATE ../${plain} ../stream/tls)
  target_compile_definitions(dlock-${name} PRIVATE STREAM_PLAIN="${plain}")
endmacro()
