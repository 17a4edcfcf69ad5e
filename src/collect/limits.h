// Every bound of the receiver, in one place. What goes over one is answered or cut, and counted (base/loss.h).
//
// Together they bound its memory whatever clients send: bodies being read, one body unpacked and decoded at a time,
// and the three tables of runs and spans below, about 1.5 GB with everything at its limit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tailspan::collect {

struct Limits {
  // HTTP. Over one of the first two: 413 and body_too_large.
  size_t body_bytes = 64u << 20;           // as it comes over the wire
  size_t decompressed_bytes = 128u << 20;  // after gzip, deflate or zstd
  size_t all_bodies_bytes = 256u << 20;    // of all requests being read; over it the slowest of them is closed: 408
  size_t decoded_bytes = 512u << 20;       // the spans of one OTLP body: 413
  size_t json_bytes = 32u << 20;           // one JSON document: 413. Parsing takes up to 14 bytes for each of these
  size_t header_bytes = 64u << 10;         // 431
  size_t connections = 2048;               // over it the longest idle one is closed, with none idle the slowest: 408;
                                           // at most half of the descriptors that the process may have
  int64_t slow_ns = 250'000'000;           // a request is slow when it is not there after this
  int64_t idle_ns = 75'000'000'000;        // a kept-alive connection without a request
  int64_t body_wait_ns = 30'000'000'000;   // a request whose body stops coming

  // One span. Longer text is cut at a character's end, further entries are left out: attribute_cut.
  size_t attribute_bytes = 4096;
  size_t content_bytes = 256u << 10;  // a prompt or an answer, only with keep_content
  size_t attributes = 128;
  size_t events = 128;
  size_t raw_attributes = 1024;  // as they come, before names are mapped
  size_t name_bytes = 1024;
  int32_t value_depth = 32;  // nesting of an OTLP array or kvlist value

  // A multipart body.
  size_t parts = 200'000;

  // LangSmith runs that have not ended, or whose post has not come. Over it the oldest is given out as it is.
  size_t open_runs = 100'000;
  size_t open_run_bytes = 256u << 20;
  // Receiver to file within two seconds: a run that is open for longer than this is handed on, the recorder writes and
  // flushes what it has once a second.
  int64_t open_save_ns = 400'000'000;
  int64_t open_run_age_ns = 7 * 86'400'000'000'000;  // an agent may work for days
  int64_t patch_wait_ns = 5'000'000'000;             // how long an ended run waits for its post
  size_t finished_runs = 65'536;                     // ids remembered, to tell a repeated run from a new one

  // Hybrid senders: how long an OTLP span waits for its LangSmith twin, and how many spans and ids are remembered.
  int64_t twin_wait_ns = 500'000'000;
  size_t held_spans = 20'000;
  size_t held_bytes = 64u << 20;
  size_t remembered_runs = 8192;
  size_t remembered_bytes = 64u << 20;
};

}  // namespace tailspan::collect
