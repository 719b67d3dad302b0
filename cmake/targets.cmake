# Functions for the targets of this project. They set target properties only, so that nothing leaks into a parent
# project.

# dlock_target(<target>) sets language level, warnings and sanitizers.
function(dlock_target target)
  target_compile_features(${target} PRIVATE c_std_11)
  set_target_properties(${target} PROPERTIES C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes> -Wpointer-arith -Wwrite-strings -Wconversion -Wno-sign-conversion -Wformat=2 -Wundef -Wvla
    # A constant is an enum here; clang 19 warns where one is calculated with a double.
    $<$<C_COMPILER_ID:Clang>:-Wno-enum-float-conversion>
    $<$<BOOL:${DLOCK_WERROR}>:-Werror>)
  if(DLOCK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${DLOCK_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${DLOCK_SANITIZE})
  endif()
endfunction()

# dlock_backend(<name> SOURCES … [ALIASES scheme-alias …] [LIBRARIES …] [SCRIPTS file …])
# Builds a backend: a module dlock-<name>.so beside the library, or, if listed in DLOCK_STATIC_BACKENDS, an object
# library. It sees only the headers of include/ and its own client library. Scripts are embedded (dlock_embed). Sets
# DLOCK_BACKEND_COMPONENT, the component for installing the backend's files: its own, or that of the library.
function(dlock_backend name)
  cmake_parse_arguments(arg "" "" "SOURCES;ALIASES;LIBRARIES;SCRIPTS" ${ARGN})
  set(target dlock-${name})
  if(name IN_LIST DLOCK_STATIC_BACKENDS)
    set(component library)
    add_library(${target} OBJECT ${arg_SOURCES})
    set_property(GLOBAL APPEND PROPERTY dlock_static_libraries ${arg_LIBRARIES})
  else()
    set(component backend_${name})
    add_library(${target} MODULE ${arg_SOURCES})
    set_target_properties(${target} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${DLOCK_MODULE_DIR})
    target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
    # With sanitizers a module has undefined symbols: their runtime is in the program.
    if(NOT DLOCK_SANITIZE)
      target_link_options(${target} PRIVATE -Wl,-z,defs)
    endif()
    set(folder ${CMAKE_INSTALL_LIBDIR}/dlock/${DLOCK_SERIES})
    install(TARGETS ${target} LIBRARY DESTINATION ${folder} COMPONENT ${component})
    foreach(alias IN LISTS arg_ALIASES)
      add_custom_command(TARGET ${target} POST_BUILD
        COMMAND ${CMAKE_COMMAND} -E create_symlink ${target}.so ${DLOCK_MODULE_DIR}/dlock-${alias}.so)
      install(FILES ${DLOCK_MODULE_DIR}/dlock-${alias}.so DESTINATION ${folder} COMPONENT ${component})
    endforeach()
  endif()
  set(DLOCK_BACKEND_COMPONENT ${component} PARENT_SCOPE)
  dlock_target(${target})
  target_link_libraries(${target} PRIVATE dlock-headers ${arg_LIBRARIES})
  dlock_embed(${target} ${arg_SCRIPTS})
endfunction()

# dlock_embed(<target> file …) generates for each file a header `<file>.h` that the target's sources can include. It has
# the file as the string `<file>_text` and its SHA-1 as the macro `<file>_sha1`.
function(dlock_embed target)
  foreach(path IN LISTS ARGN)
    get_filename_component(file ${path} NAME)
    get_filename_component(path ${path} ABSOLUTE)
    string(MAKE_C_IDENTIFIER ${file} symbol)
    set(header ${CMAKE_CURRENT_BINARY_DIR}/${file}.h)
    add_custom_command(OUTPUT ${header}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${path} -DOUTPUT=${header} -DSYMBOL=${symbol}
        -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
      DEPENDS ${path} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
    target_sources(${target} PRIVATE ${header})
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
  endforeach()
endfunction()

# dlock_join(<file> <folder> part …) concatenates the parts, files in <folder> with the same extension, to <file> in the
# binary directory.
function(dlock_join file folder)
  get_filename_component(extension ${file} EXT)
  set(text "")
  foreach(part IN LISTS ARGN)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${part}${extension})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} part_text)
    string(APPEND text "${part_text}")
  endforeach()
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/${file})
  file(WRITE ${joined}.new "${text}")
  configure_file(${joined}.new ${joined} COPYONLY) # keeps the time stamp if nothing has changed
endfunction()
