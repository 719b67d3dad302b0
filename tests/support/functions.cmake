# dlock_unseen(<target>): the thread sanitizer does not see what the target's code does to its memory (tsan.h).
function(dlock_unseen target)
  if(DLOCK_SANITIZE MATCHES thread)
    target_compile_options(${target} PRIVATE -fno-sanitize=thread)
    target_compile_definitions(${target} PRIVATE DLOCK_TEST_TSAN)
  endif()
endfunction()

# dlock_test_harness(<backend> [OBJECTS] [SOURCES …] [LIBRARIES …]): makes the library that the tests of one backend
# share, beside tests/support. With OBJECTS the tests see the backend's internal functions, else only its table of
# operations.
function(dlock_test_harness backend)
  cmake_parse_arguments(arg "OBJECTS" "" "SOURCES;LIBRARIES" ${ARGN})
  set(target dlock-${backend}-harness)
  set(symbol dlock_backend_${backend})
  add_library(${target} OBJECT ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/backend.c)
  dlock_target(${target})
  target_link_libraries(${target} PUBLIC dlock-test-support ${arg_LIBRARIES} ${CMAKE_DL_LIBS})
  if(arg_OBJECTS OR backend IN_LIST DLOCK_STATIC_BACKENDS)
    target_sources(${target} INTERFACE $<TARGET_OBJECTS:dlock-${backend}>)
    target_compile_definitions(${target} PRIVATE DLOCK_TEST_SYMBOL=${symbol})
  else()
    target_compile_definitions(${target} PRIVATE DLOCK_TEST_SYMBOL="${symbol}"
      DLOCK_TEST_MODULE="$<TARGET_FILE:dlock-${backend}>")
  endif()
  if(backend IN_LIST DLOCK_STATIC_BACKENDS)
    target_link_libraries(${target} INTERFACE dlock-${backend})
  endif()
endfunction()

# dlock_backend_test(<backend> <name> [LIBRARIES …] [WRAPPER command …]): makes a program of <name>_test.c and the
# harness, and adds it to CTest as <backend>/<name>.
function(dlock_backend_test backend name)
  cmake_parse_arguments(arg "" "" "LIBRARIES;WRAPPER" ${ARGN})
  set(target ${backend}-${name})
  add_executable(${target} ${name}_test.c)
  dlock_target(${target})
  target_link_libraries(${target} PRIVATE dlock-${backend}-harness dlock-test-support ${arg_LIBRARIES})
  if(NOT backend IN_LIST DLOCK_STATIC_BACKENDS)
    add_dependencies(${target} dlock-${backend})
  endif()
  add_test(NAME ${backend}/${name} COMMAND ${arg_WRAPPER} $<TARGET_FILE:${target}>)
  set_tests_properties(${backend}/${name} PROPERTIES LABELS ${backend} TIMEOUT 300 COST 15)
  dlock_quick(${backend} ${backend}/${name})
endfunction()

# dlock_quick(<backend> <test> …): these tests also run in `ctest -L quick`, if the backend takes no server.
function(dlock_quick backend)
  if(backend MATCHES "^(file|mem)$")
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS quick)
  endif()
endfunction()


# dlock_starved_test(<backend> [option…]): makes the program <backend>-starved of support/starved_test.c, which scripts run
# as $STARVED_TEST; the options are the linker's.
function(dlock_starved_test backend)
  set(target ${backend}-starved)
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/support/starved_test.c)
  dlock_target(${target})
  target_link_libraries(${target} PRIVATE dlock-${backend}-harness dlock-test-support)
  target_link_options(${target} PRIVATE ${ARGN})
  if(NOT backend IN_LIST DLOCK_STATIC_BACKENDS)
    add_dependencies(${target} dlock-${backend})
  endif()
endfunction()

# dlock_waits(<test> …): these tests take long, and wait for nearly all of that time. tests/run.sh has places for them
# beside those of the tests that work.
function(dlock_waits)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1 RESOURCE_GROUPS "waits:1")
endfunction()
