# Each untrusted input's fuzz target: <name>.cc, inputs to start from in seeds/<name>, kept finds in regressions/<name>.
set(TAILSPAN_FUZZ_TARGETS otlp_protobuf otlp_json multipart langsmith_api content_encoding)
set(TAILSPAN_FUZZ_DIR ${CMAKE_CURRENT_LIST_DIR})
