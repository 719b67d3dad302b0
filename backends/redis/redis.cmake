# What the backends for Redis are made of, over whichever stream: dlock_redis(<name> [SOURCES …] [LIBRARIES …]).
find_package(PkgConfig REQUIRED)
pkg_check_modules(DLOCK_HIREDIS IMPORTED_TARGET hiredis)
set(DLOCK_REDIS_FOLDER ${CMAKE_CURRENT_LIST_DIR})

function(dlock_redis name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT DLOCK_HIREDIS_FOUND)
    message(FATAL_ERROR "The ${name} backend needs hiredis: install the package libhiredis-dev, "
      "or leave ${name} out of DLOCK_BACKENDS.")
  endif()

  # Each script as the server gets it: scripts/<script>.lua, and scripts/many_<script>.lua for several locks in one call.
  set(scripts)
  foreach(output_name acquire renew release break inspect incarnation many_acquire many_renew many_release)
    string(REGEX REPLACE "^many_" "" script ${output_name})
    string(COMPARE NOTEQUAL ${script} ${output_name} many)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/scripts/${output_name}.lua)
    set(parts ${script}.lua library.lua fence.lua many.lua assemble.cmake)
    list(TRANSFORM parts PREPEND ${DLOCK_REDIS_FOLDER}/)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DFOLDER=${DLOCK_REDIS_FOLDER} -DSCRIPT=${script} -DMANY=${many} -DOUTPUT=${output}
        -P ${DLOCK_REDIS_FOLDER}/assemble.cmake
      DEPENDS ${parts} VERBATIM)
    list(APPEND scripts ${output})
  endforeach()

  set(sources redis.c address.c wire.c info.c incarnation.c scripts.c claims.c pipeline.c inspect.c check.c rights.c listen.c
    sentinel.c)
  if(NOT DLOCK_REDIS_FOLDER STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    list(TRANSFORM sources PREPEND ../redis/)
  endif()
  dlock_backend(${name}
    SOURCES ${sources} ${arg_SOURCES}
    LIBRARIES PkgConfig::DLOCK_HIREDIS ${arg_LIBRARIES}
    SCRIPTS ${scripts})
endfunction()
