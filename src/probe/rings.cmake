# Reading what a process publishes by libtailspan_context: a module of its own, so that the agent and the tests can have
# it without the kernel programs. Included from src/context/CMakeLists.txt.
set(rings ${CMAKE_SOURCE_DIR}/src/probe)
add_module(NAME rings
  SOURCES ${rings}/process_context.cc ${rings}/loop_ring_decode.cc ${rings}/loop_ring_reader.cc
  DEPS model base
  LINK fmt::fmt
  TESTS ${rings}/process_context_test.cc ${rings}/loop_ring_reader_test.cc
  TEST_LINK tailspan_context)

if(TAILSPAN_TESTS)
  add_executable(loop_ring_dump ${CMAKE_SOURCE_DIR}/tests/python/loop/loop_ring_dump.cc)
  target_link_libraries(loop_ring_dump PRIVATE tailspan_rings tailspan_options fmt::fmt)
endif()

if(TAILSPAN_TESTS)
  include(${CMAKE_SOURCE_DIR}/fuzz/rings.cmake)
  foreach(name IN LISTS TAILSPAN_FUZZ_RING_TARGETS)
    add_executable(replay_${name} ${TAILSPAN_FUZZ_DIR}/${name}.cc ${TAILSPAN_FUZZ_DIR}/driver_replay.cc)
    target_include_directories(replay_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(replay_${name} PRIVATE tailspan_rings tailspan_options)
    add_test(NAME replay_${name}
      COMMAND replay_${name} ${TAILSPAN_FUZZ_DIR}/seeds/${name} ${TAILSPAN_FUZZ_DIR}/regressions/${name})
    set_tests_properties(replay_${name} PROPERTIES TIMEOUT 60)
  endforeach()
endif()
