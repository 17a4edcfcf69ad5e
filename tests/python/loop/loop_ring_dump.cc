// loop_ring_dump PID: reads that process's loop ring with the real reader until standard input closes, then prints all
// records as one JSON object. For the Python tests, which check them against the program's own log.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "probe/loop_ring_reader.h"

using namespace tailspan;

namespace {

constexpr int kKindCount = 6;
const char* const kKinds[kKindCount] = {"soon", "io_read", "io_write", "timer", "executor", "new_task"};
const char* const kChanges[] = {"enter", "leave", "restore"};

// Waits for a process to publish its context: a forked or executed one needs a moment.
base::Result<probe::LoopRingReader> OpenSoon(int32_t pid, base::LossCounters* loss) {
  base::Error last;
  for (int i = 0; i < 200; ++i) {
    auto context = probe::ReadProcessContext(pid);
    if (context.ok()) {
      auto reader = probe::LoopRingReader::Open(pid, *context, loss);
      if (reader.ok()) return reader;
      last = reader.error();
    } else {
      last = context.error();
    }
    usleep(10000);
  }
  return last;
}

template <typename List, typename Print>
void PrintList(const char* name, const List& list, Print print) {
  fmt::print("\"{}\": [", name);
  for (size_t i = 0; i < list.size(); ++i) {
    fmt::print("{}\n", i ? "," : "");
    print(list[i]);
  }
  fmt::print("],\n");
}

void Print(const model::RecordBatch& batch, const base::LossCounters& loss) {
  fmt::print("{{");
  PrintList("steps", batch.steps, [](const model::LoopStep& s) {
    fmt::print(R"({{"pid":{},"tid":{},"id":{},"waker":{},"waker_span":"{}","waker_tid":{},"task":{},"kind":"{}",)"
               R"("site":{},"fd":{},"span":"{}","outer":"{}","ready":{},"start":{},"end":{}}})",
               s.pid, s.tid, s.step_id, s.waker_step_id, model::ToHex(s.waker_span_id),
               model::PlainThreadOf(s.waker_step_id), s.task, kKinds[static_cast<int>(s.kind)], s.site, s.fd,
               model::ToHex(s.span_id), model::ToHex(s.outer_span_id), s.ready_mono_ns, s.start_mono_ns, s.end_mono_ns);
  });
  PrintList("changes", batch.span_changes, [](const model::SpanChange& c) {
    fmt::print(R"({{"tid":{},"at":{},"step":{},"span":"{}","previous":"{}","kind":"{}"}})", c.tid, c.at_mono_ns,
               c.step_id, model::ToHex(c.span_id), model::ToHex(c.previous_id), kChanges[static_cast<int>(c.kind)]);
  });
  PrintList("polls", batch.polls, [](const model::LoopPoll& p) {
    fmt::print(R"({{"tid":{},"enter":{},"return":{},"resume":{},"ready":{}}})", p.tid, p.enter_mono_ns,
               p.return_mono_ns, p.resume_mono_ns, p.ready_count);
  });
  PrintList("gc", batch.gc_pauses, [](const model::GcPause& g) {
    fmt::print(R"({{"tid":{},"start":{},"end":{},"generation":{},"step":{},"span":"{}"}})", g.tid, g.start_mono_ns,
               g.end_mono_ns, g.generation, g.step_id, model::ToHex(g.span_id));
  });
  PrintList("sockets", batch.sockets, [](const model::SocketInfo& s) {
    fmt::print(R"({{"fd":{},"from":{},"inode":{},"local":"{}","remote":"{}","registered":{}}})", s.fd, s.from_mono_ns,
               s.inode, model::ToText(s.local), model::ToText(s.remote), s.registered);
  });
  PrintList("sites", batch.sites, [](const model::LoopSite& s) { fmt::print(R"([{},"{}"])", s.index, s.name); });
  PrintList("holes", batch.loop_holes, [](const model::LoopHole& h) { fmt::print("{}", h.record_count); });
  fmt::print("\"loss\": {{");
  const char* comma = "";
  for (const auto& [name, count] : loss.NonZero()) {
    fmt::print("{}\"{}\":{}", comma, name, count);
    comma = ",";
  }
  fmt::print("}}}}\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: loop_ring_dump PID\n");
    return 2;
  }
  base::LossCounters loss;
  auto reader = OpenSoon(std::atoi(argv[1]), &loss);
  if (!reader.ok()) {
    fmt::print("failed: {}\n", reader.error().message);
    return 1;
  }
  model::RecordBatch before, batch;
  reader->Drain(&before);  // what came before the test, but its names
  batch.sites = before.sites;
  fmt::print("ready\n");
  std::fflush(stdout);
  pollfd input{0, POLLIN, 0};
  while (poll(&input, 1, 5) == 0) reader->Drain(&batch);
  reader->Drain(&batch);
  Print(batch, loss);
  return 0;
}
