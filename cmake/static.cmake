# The client libraries of backends, and backends that are linked into libdlock (DLOCK_STATIC_BACKENDS).

# dlock_client_library(<backend> <variable> <package> <module> …) defines the target PkgConfig::<variable> for these
# pkg-config modules, which are in Debian's <package>.
macro(dlock_client_library backend variable package)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(${variable} IMPORTED_TARGET GLOBAL ${ARGN})
  if(NOT ${variable}_FOUND)
    message(FATAL_ERROR "The ${backend} backend needs ${ARGN}: install the package ${package}, "
      "or leave ${backend} out of DLOCK_BACKENDS.")
  endif()
  if("${backend}" IN_LIST DLOCK_STATIC_BACKENDS)
    set_property(GLOBAL APPEND PROPERTY dlock_static_variables ${variable})
    set_property(GLOBAL PROPERTY dlock_static_${variable} "${ARGN}")
  endif()
endmacro()

# dlock_combine(<backend> <variable>) links all objects of a backend into one object file, whose path it puts into
# <variable>. Only the backend's table stays global in it: some backends consist of the same files, and names could
# clash with those of applications.
function(dlock_combine backend variable)
  set(combined ${CMAKE_CURRENT_BINARY_DIR}/dlock-${backend}${CMAKE_C_OUTPUT_EXTENSION})
  add_custom_command(OUTPUT ${combined}
    COMMAND ${CMAKE_LINKER} -r -o ${combined} $<TARGET_OBJECTS:dlock-${backend}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=dlock_backend_${backend} ${combined}
    DEPENDS $<TARGET_OBJECTS:dlock-${backend}> COMMAND_EXPAND_LISTS VERBATIM)
  set(${variable} ${combined} PARENT_SCOPE)
endfunction()

# dlock_static_libraries(<variable>) lists the libraries that the backends inside libdlock need.
function(dlock_static_libraries variable)
  get_property(libraries GLOBAL PROPERTY dlock_static_libraries)
  list(REMOVE_DUPLICATES libraries)
  list(TRANSFORM libraries REPLACE "^/.*/lib([^/]+)\\.(so|a)$" "\\1") # their folder may differ on another machine
  set(${variable} ${libraries} PARENT_SCOPE)
endfunction()

# dlock_static_needs(<requires> <libs> <config>) sets what dlock.pc and dlockConfig.cmake have to name so that users of
# a static libdlock link its dependencies: shared libraries, since few of them exist as archives. Empty for a shared
# libdlock.
function(dlock_static_needs requires libs config)
  set(modules "") # pkg-config modules
  set(flags "")
  set(commands "")
  if(DLOCK_LIBRARY_TYPE STREQUAL STATIC)
    set(commands "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n")
    set(flags " -pthread -l${CMAKE_DL_LIBS}")
    get_property(variables GLOBAL PROPERTY dlock_static_variables)
    list(REMOVE_DUPLICATES variables)
    if(variables)
      string(APPEND commands "find_dependency(PkgConfig)\n")
    endif()
    foreach(variable IN LISTS variables)
      get_property(wanted GLOBAL PROPERTY dlock_static_${variable})
      list(JOIN wanted " " wanted)
      string(APPEND commands "pkg_check_modules(${variable} REQUIRED IMPORTED_TARGET ${wanted})\n")
      string(REGEX REPLACE "([<>=]+)" " \\1 " wanted "${wanted}")
      string(APPEND modules " ${wanted}")
    endforeach()
    dlock_static_libraries(libraries)
    foreach(library IN LISTS libraries)
      if(NOT library MATCHES "::")
        string(APPEND flags " -l${library}")
      endif()
    endforeach()
  endif()
  set(${requires} "${modules}" PARENT_SCOPE)
  set(${libs} "${flags}" PARENT_SCOPE)
  set(${config} "${commands}" PARENT_SCOPE)
endfunction()
