# Makes a backend for Redis, over whichever stream: dlock_redis(<name> [SOURCES …] [ALIASES …] [LIBRARIES …]).
set(DLOCK_REDIS_FOLDER ${CMAKE_CURRENT_LIST_DIR})

function(dlock_redis name)
  cmake_parse_arguments(arg "" "" "SOURCES;ALIASES;LIBRARIES" ${ARGN})
  dlock_client_library(${name} DLOCK_HIREDIS libhiredis-dev hiredis)

  # Each script as the server gets it: scripts/<script>.lua, and scripts/many_<script>.lua for several locks in one call.
  set(scripts)
  foreach(output_name acquire renew release break inspect incarnation many_acquire many_renew many_release)
    string(REGEX REPLACE "^many_" "" script ${output_name})
    string(REGEX REPLACE "_?${script}$" "" variant ${output_name})
    set(output ${CMAKE_CURRENT_BINARY_DIR}/scripts/${output_name}.lua)
    set(parts ${script}.lua library.lua fence.lua channel.lua many.lua assemble.cmake)
    list(TRANSFORM parts PREPEND ${DLOCK_REDIS_FOLDER}/)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DFOLDER=${DLOCK_REDIS_FOLDER} -DSCRIPT=${script} -DVARIANT=${variant} -DOUTPUT=${output}
        -P ${DLOCK_REDIS_FOLDER}/assemble.cmake
      DEPENDS ${parts} VERBATIM)
    list(APPEND scripts ${output})
  endforeach()
  file(GLOB old ${CMAKE_CURRENT_BINARY_DIR}/scripts/*.lua) # of an earlier list, in a build tree that stays
  list(REMOVE_ITEM old ${scripts})
  if(old)
    file(REMOVE ${old})
  endif()

  set(sources redis.c address.c wire.c info.c greeting.c incarnation.c scripts.c slots.c claims.c pipeline.c inspect.c
    check.c rights.c listen.c master.c sentinel.c map.c nodes.c cluster.c cluster_claims.c cluster_inspect.c
    cluster_listen.c)
  if(NOT DLOCK_REDIS_FOLDER STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    list(TRANSFORM sources PREPEND ../redis/)
  endif()
  dlock_backend(${name}
    SOURCES ${sources} ${arg_SOURCES}
    ALIASES ${arg_ALIASES}
    LIBRARIES PkgConfig::DLOCK_HIREDIS ${arg_LIBRARIES}
    SCRIPTS ${scripts})
endfunction()
