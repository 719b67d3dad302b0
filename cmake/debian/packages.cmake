# Debian packages with CPack: cmake --workflow --preset debian. Each package is a component of the installation.
set(DLOCK_PACKAGE_CONTACT "dlock maintainers <dlock@example.org>" CACHE STRING "Maintainer of the packages: name <address>")
# With this release number, packages of Debian's own with the same version, whose release begins with 1, replace these.
set(DLOCK_PACKAGE_RELEASE 0upstream1 CACHE STRING "What follows the version and a hyphen in that of the packages")
if(NOT DLOCK_PACKAGE_CONTACT MATCHES "^[^<>]+ <[^<> ]+@[^<> ]+>$")
  message(FATAL_ERROR "DLOCK_PACKAGE_CONTACT is \"${DLOCK_PACKAGE_CONTACT}\": it has to be \"name <address>\", whom users write to")
endif()
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR NOT CMAKE_SKIP_INSTALL_RPATH)
  message(FATAL_ERROR "DLOCK_PACKAGES needs CMAKE_INSTALL_PREFIX=/usr and CMAKE_SKIP_INSTALL_RPATH=ON: use the preset debian")
endif()

# The Python package, in the folder of Debian's Python, with the metadata that tell other packages its version.
set(python ${CMAKE_INSTALL_PREFIX}/lib/python3/dist-packages)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/debian/METADATA
  CONTENT "Metadata-Version: 2.1\nName: dlock\nVersion: @PROJECT_VERSION@\n" @ONLY)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/bindings/python/src/dlock DESTINATION ${python} COMPONENT python
  PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/debian/METADATA DESTINATION ${python}/dlock-${PROJECT_VERSION}.dist-info
  COMPONENT python)

# dlock_package(<component> <name> <section> <depends> <summary> <description>) defines a package. <depends> lists
# components, which must have exactly this version; dpkg-shlibdeps finds the dependencies on other packages.
function(dlock_package component name section depends summary description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DEPENDS ${depends} PARENT_SCOPE)
  string(REGEX REPLACE "\n$" "" description "${description}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
endfunction()

set(about [[
dlock gives any program the same distributed lock on any coordination
server: mutual exclusion with leases that renew themselves, fences that only
grow, readers and writers, permits, and word of a lock that was lost.
]])
set(CPACK_COMPONENTS_ALL "")
dlock_package(library libdlock${DLOCK_SERIES} libs "" "one lock API for any coordination server" "${about}
This is the library, with the guardian that it starts for guardian=on. Locks
on files, on a quorum and in memory are in it; those on servers need the
dlock-backend package of that server.
")
dlock_package(development libdlock-dev libdevel library "one lock API for any coordination server (development)" "${about}
These are the headers for C and C++, also those that a backend is written
with, files for pkg-config and CMake, and dlock-conformance, the test suite
for backends.
")
dlock_package(command dlock utils library "command that runs others under a distributed lock" "${about}
This is the command: it runs others under a lock, from a shell or from cron,
as flock does on files, shows who holds which lock, and checks a server.
")
dlock_package(bench dlock-bench utils "command;library" "compares lock servers, by speed and by fairness" "${about}
This runs the same workloads on several servers, next to the barest client of
each, and prints tables or a page with charts.
")
dlock_package(python python3-dlock python library "one lock API for any coordination server (Python 3)" "${about}
This is the package for Python, for threads and for asyncio.
")

set(server_redis "Redis or Valkey")
set(server_rediss "Redis or Valkey over TLS")
set(server_memcached "memcached")
set(server_memcached_tls "memcached over TLS")
set(server_memcached_sasl "memcached with SASL")
set(server_zookeeper "Apache ZooKeeper")
set(server_etcd "etcd")
set(server_postgresql "PostgreSQL")
set(server_mysql "MySQL or MariaDB")
set(modules ${DLOCK_BACKENDS})
list(REMOVE_ITEM modules ${DLOCK_STATIC_BACKENDS})
set(backends "")
foreach(backend IN LISTS modules)
  if(NOT DEFINED server_${backend})
    set(server_${backend} ${backend})
  endif()
  string(REPLACE _ - name dlock-backend-${backend})
  list(APPEND backends ${name})
  dlock_package(backend_${backend} ${name} libs library
    "one lock API for any coordination server (${server_${backend}})" "${about}
This is the module for locks on ${server_${backend}}.
")
endforeach()

set(CPACK_PACKAGE_NAME dlock)
set(CPACK_PACKAGE_VENDOR dlock)
set(CPACK_PACKAGE_CONTACT "${DLOCK_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DLOCK_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SOURCE dlock)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)

list(JOIN backends ", " backends)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "${backends}")
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS dlock-bench)
set(CPACK_DEBIAN_BENCH_PACKAGE_RECOMMENDS "${backends}")
set(CPACK_DEBIAN_BENCH_PACKAGE_SUGGESTS "python3-redis, python3-kazoo")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "${backends}")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "${backends}")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3:any")

# Control files. By default CPack adds scripts to the library's package that run ldconfig, where Debian wants a trigger.
# It adds none if scripts are named here; they need not exist: CPack only warns.
set(version ${PROJECT_VERSION}-${DLOCK_PACKAGE_RELEASE})
set(control ${PROJECT_BINARY_DIR}/debian)
file(CONFIGURE OUTPUT ${control}/shlibs CONTENT "libdlock @DLOCK_SERIES@ libdlock@DLOCK_SERIES@ (>= @PROJECT_VERSION@)\n" @ONLY)
file(CONFIGURE OUTPUT ${control}/triggers CONTENT "activate-noawait ldconfig\n")
set(scripts ${CMAKE_CURRENT_LIST_DIR}/python3)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${control}/shlibs ${control}/triggers
  ${control}/none/postinst ${control}/none/postrm)
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${scripts}/postinst ${scripts}/prerm)

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # uses $SOURCE_DATE_EPOCH if that is set
file(CONFIGURE OUTPUT ${control}/changelog CONTENT [[
dlock (@version@) unstable; urgency=medium

  * Built from dlock's own source; CHANGELOG.md there says what is new.

 -- @DLOCK_PACKAGE_CONTACT@  @date@
]] @ONLY)

# Variables for stage.cmake, which adds copyright and changelog to each package.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/stage.cmake)
set(CPACK_DLOCK_COPYRIGHT ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DLOCK_CHANGELOG ${control}/changelog)
include(CPack)
