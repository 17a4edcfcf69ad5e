# Fuzz targets of what watched processes write (src/probe/rings.cmake): as targets.cmake, but without the receiver.
set(TAILSPAN_FUZZ_RING_TARGETS process_context loop_record)
set(TAILSPAN_FUZZ_DIR ${CMAKE_CURRENT_LIST_DIR})
