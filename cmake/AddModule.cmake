# One way to declare a module, so that every CMakeLists.txt below src/ is a list of files.
#
# add_module(NAME name SOURCES a.cc ... [DEPS module ...] [LINK library ...] [TESTS a_test.cc ...] [TEST_LINK library ...])
# makes the static library tailspan_<name> and, for TESTS, the program <name>_test, registered with ctest.

add_library(tailspan_options INTERFACE)
target_include_directories(tailspan_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(tailspan_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -fno-omit-frame-pointer)
if(TAILSPAN_SANITIZE)
  target_compile_options(tailspan_options INTERFACE -fsanitize=${TAILSPAN_SANITIZE} -fno-sanitize-recover=undefined)
  target_link_options(tailspan_options INTERFACE -fsanitize=${TAILSPAN_SANITIZE})
endif()

# What is loaded into watched programs runs under their runtime: sanitized, it needs the sanitizer loaded before them.
add_library(tailspan_loaded_options INTERFACE)
set(TAILSPAN_LOADED_ENVIRONMENT "")
if(TAILSPAN_SANITIZE_LOADED)
  target_compile_options(tailspan_loaded_options INTERFACE
    -fsanitize=${TAILSPAN_SANITIZE_LOADED} -fno-sanitize-recover=undefined)
  target_link_options(tailspan_loaded_options INTERFACE -fsanitize=${TAILSPAN_SANITIZE_LOADED})
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so
    OUTPUT_VARIABLE libasan OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(TAILSPAN_LOADED_ENVIRONMENT "LD_PRELOAD=${libasan}")
endif()

function(add_module)
  cmake_parse_arguments(M "" "NAME" "SOURCES;DEPS;LINK;TESTS;TEST_LINK" ${ARGN})
  set(target tailspan_${M_NAME})
  add_library(${target} STATIC ${M_SOURCES})
  target_link_libraries(${target} PRIVATE tailspan_options)
  foreach(dep IN LISTS M_DEPS)
    target_link_libraries(${target} PUBLIC tailspan_${dep})
  endforeach()
  target_link_libraries(${target} PRIVATE ${M_LINK})
  if(TAILSPAN_TESTS AND M_TESTS)
    add_executable(${M_NAME}_test ${M_TESTS})
    target_link_libraries(${M_NAME}_test PRIVATE ${target} tailspan_options ${M_TEST_LINK} GTest::gtest GTest::gtest_main)
    add_test(NAME ${M_NAME} COMMAND ${M_NAME}_test)
    set_tests_properties(${M_NAME} PROPERTIES TIMEOUT 300)
  endif()
endfunction()
