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
