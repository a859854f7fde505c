#include "observe/shown_trace.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <stdexcept>
#include <tuple>

#include "base/json.hpp"

namespace lockstep::testing {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// Slices of a thread must lie beside or inside each other: viewers drop those that only overlap.
void require_nested(const std::vector<ShownSlice>& slices) {
  std::map<std::pair<int, int>, std::vector<const ShownSlice*>> threads;
  for (const ShownSlice& slice : slices) threads[{slice.pid, slice.tid}].push_back(&slice);
  for (auto& [thread, list] : threads) {
    std::stable_sort(list.begin(), list.end(), [](const ShownSlice* a, const ShownSlice* b) {
      return a->start_ns != b->start_ns ? a->start_ns < b->start_ns : a->end_ns > b->end_ns;
    });
    std::vector<int64_t> open;
    for (const ShownSlice* slice : list) {
      while (!open.empty() && open.back() <= slice->start_ns) open.pop_back();
      require(open.empty() || slice->end_ns <= open.back(), "slices of a thread overlap");
      open.push_back(slice->end_ns);
    }
  }
}

// --- protobuf's wire format (protobuf.dev/programming-guides/encoding) ---

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint or a fixed64
  std::string_view bytes;  // of what has a length
};

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    require(!bytes.empty(), "a varint is cut off");
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw std::runtime_error("a varint does not end");
}

std::string_view take_bytes(std::string_view& bytes, uint64_t count) {
  require(count <= bytes.size(), "a field is cut off");
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

std::vector<Field> fields_of(std::string_view bytes) {
  std::vector<Field> out;
  while (!bytes.empty()) {
    const uint64_t tag = take_varint(bytes);
    Field field{tag >> 3, 0, {}};
    switch (tag & 7) {
      case 0:
        field.value = take_varint(bytes);
        break;
      case 1: {
        const std::string_view eight = take_bytes(bytes, 8);
        for (size_t i = 0; i < 8; ++i) {
          field.value |= static_cast<uint64_t>(static_cast<unsigned char>(eight[i])) << (8 * i);
        }
        break;
      }
      case 2:
        field.bytes = take_bytes(bytes, take_varint(bytes));
        break;
      default:
        throw std::runtime_error("a wire type that Perfetto does not use");
    }
    out.push_back(field);
  }
  return out;
}

// The one field of a number, if it is there.
const Field* find(const std::vector<Field>& fields, uint64_t number) {
  const Field* found = nullptr;
  for (const Field& field : fields) {
    if (field.number != number) continue;
    require(found == nullptr, "a field stands twice");
    found = &field;
  }
  return found;
}
const Field& at(const std::vector<Field>& fields, uint64_t number) {
  const Field* found = find(fields, number);
  require(found != nullptr, "a field is missing");
  return *found;
}

// --- Perfetto's packets, as its trace processor takes them ---

class PerfettoReader {
 public:
  void packet(std::string_view bytes) {
    const std::vector<Field> fields = fields_of(bytes);
    const uint64_t id = at(fields, 10).value;
    require(id > 0, "a sequence needs an id");
    Sequence& sequence = sequences_[id];
    const uint64_t flags = at(fields, 13).value;
    if (flags & 1) {
      sequence = {};
      sequence.valid = true;
    }
    require(sequence.valid, "a packet needs state that was not sent");
    if (const Field* interned = find(fields, 12)) intern(sequence, interned->bytes);
    if (const Field* defaults = find(fields, 59)) {
      sequence.default_track = at(fields_of(at(fields_of(defaults->bytes), 11).bytes), 11).value;
    }
    if (const Field* descriptor = find(fields, 60)) describe(descriptor->bytes);
    if (const Field* event = find(fields, 11)) {
      require((flags & 2) != 0, "a packet uses interned names and does not say so");
      const auto time = static_cast<int64_t>(at(fields, 8).value);
      require(time >= sequence.time, "a sequence goes back in time");
      sequence.time = time;
      take_event(sequence, time, fields_of(event->bytes));
    }
  }

  ShownTrace take() {
    for (const auto& [uuid, open] : open_) require(open.empty(), "a slice does not end");
    return std::move(trace_);
  }

 private:
  struct Sequence {
    bool valid = false;
    int64_t time = 0;
    uint64_t default_track = 0;
    std::map<std::pair<uint64_t, uint64_t>, std::string> names;  // by kind and iid
  };

  static void intern(Sequence& sequence, std::string_view bytes) {
    for (const Field& kind : fields_of(bytes)) {
      const std::vector<Field> entry = fields_of(kind.bytes);
      const uint64_t iid = at(entry, 1).value;
      require(iid > 0, "an interned name needs an id");
      require(sequence.names.emplace(std::pair(kind.number, iid), at(entry, 2).bytes).second,
              "an interned name is changed");
    }
  }

  void describe(std::string_view bytes) {
    const std::vector<Field> descriptor = fields_of(bytes);
    const uint64_t uuid = at(descriptor, 1).value;
    require(uuid != 0 && !tracks_.contains(uuid), "a track needs an id of its own");
    if (const Field* process = find(descriptor, 3)) {
      const std::vector<Field> fields = fields_of(process->bytes);
      const int pid = static_cast<int>(at(fields, 1).value);
      tracks_[uuid] = {pid, 0};
      trace_.processes[pid] = {std::string(at(fields, 6).bytes), static_cast<int>(at(fields, 3).value)};
    } else {
      const std::vector<Field> fields = fields_of(at(descriptor, 4).bytes);
      const std::pair<int, int> place(at(fields, 1).value, at(fields, 2).value);
      tracks_[uuid] = place;
      trace_.threads[place] = {std::string(at(fields, 5).bytes), static_cast<int>(at(fields, 3).value)};
    }
  }

  void take_event(Sequence& sequence, int64_t time, const std::vector<Field>& event) {
    const Field* own_track = find(event, 11);
    const uint64_t uuid = own_track != nullptr ? own_track->value : sequence.default_track;
    require(tracks_.contains(uuid) && tracks_[uuid].second != 0, "an event is on no thread");
    std::vector<ShownSlice>& open = open_[uuid];
    const uint64_t type = at(event, 9).value;
    if (type == 1) {
      ShownSlice& slice = open.emplace_back();
      std::tie(slice.pid, slice.tid) = tracks_[uuid];
      slice.start_ns = time;
      slice.category = sequence.names.at({1, at(event, 3).value});
      slice.name = sequence.names.at({2, at(event, 10).value});
      for (const Field& field : event) {
        if (field.number != 4) continue;
        const std::vector<Field> annotation = fields_of(field.bytes);
        slice.arguments[sequence.names.at({3, at(annotation, 1).value})] =
            static_cast<int64_t>(at(annotation, 4).value);
      }
    }
    require(type == 1 || (type == 2 && !open.empty()), "an end without a begin");
    ShownSlice& slice = open.back();
    if (const Field* flow = find(event, 47)) slice.leaves = flow->value;
    if (const Field* flow = find(event, 48)) slice.arrives = flow->value;
    if (type == 1) return;
    slice.end_ns = time;
    trace_.slices.push_back(std::move(slice));
    open.pop_back();
  }

  std::map<uint64_t, Sequence> sequences_;
  std::map<uint64_t, std::pair<int, int>> tracks_;    // by uuid: pid, and tid or 0
  std::map<uint64_t, std::vector<ShownSlice>> open_;  // by uuid
  ShownTrace trace_;
};

std::vector<Field> packets_of(std::string_view bytes) {
  std::vector<Field> packets = fields_of(bytes);
  for (const Field& packet : packets) require(packet.number == 1, "a trace holds packets alone");
  return packets;
}

int64_t nanoseconds(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

// Binds to the innermost slice of its thread that encloses it, which the writer puts right before it.
void bind_flow(ShownSlice& slice, const Json& event) {
  const int64_t time = nanoseconds(event.at("ts"));
  require(slice.pid == event.at("pid") && slice.tid == event.at("tid"), "a flow is not on its slice");
  require(slice.start_ns <= time && (time < slice.end_ns || slice.start_ns == slice.end_ns),
          "a flow lies outside its slice");
  const uint64_t id = std::stoull(event.at("id").get<std::string>(), nullptr, 16);
  (event.at("ph") == "s" ? slice.leaves : slice.arrives) = id;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ShownSlice& slice) {
  out << slice.pid << "/" << slice.tid << " " << slice.start_ns << "-" << slice.end_ns << " "
      << slice.category << " " << slice.name;
  for (const auto& [name, value] : slice.arguments) out << " " << name << "=" << value;
  if (slice.leaves) out << " leaves " << *slice.leaves;
  if (slice.arrives) out << " arrives " << *slice.arrives;
  return out;
}

ShownTrace read_perfetto(std::string_view bytes) {
  PerfettoReader reader;
  for (const Field& packet : packets_of(bytes)) reader.packet(packet.bytes);
  ShownTrace trace = reader.take();
  require_nested(trace.slices);
  std::sort(trace.slices.begin(), trace.slices.end());
  return trace;
}

size_t perfetto_packets(std::string_view bytes) { return packets_of(bytes).size(); }

ShownTrace read_chrome(const std::string& json) {
  ShownTrace trace;
  const Json document = Json::parse(json);
  for (const Json& event : document.at("traceEvents")) {
    const std::string phase = event.at("ph"), name = event.at("name");
    const int pid = event.at("pid");
    const int tid = event.value("tid", 0);
    if (name == "process_name") trace.processes[pid].first = event.at("args").at("name");
    if (name == "process_sort_index") trace.processes[pid].second = event.at("args").at("sort_index");
    if (name == "thread_name") trace.threads[{pid, tid}].first = event.at("args").at("name");
    if (name == "thread_sort_index") trace.threads[{pid, tid}].second = event.at("args").at("sort_index");
    if (phase == "s" || phase == "f") bind_flow(trace.slices.back(), event);
    if (phase != "X") continue;
    const int64_t start = nanoseconds(event.at("ts"));
    trace.slices.push_back({pid,
                            tid,
                            start,
                            start + nanoseconds(event.at("dur")),
                            event.at("cat"),
                            name,
                            event.at("args").get<std::map<std::string, int64_t>>(),
                            {},
                            {}});
  }
  require_nested(trace.slices);
  std::sort(trace.slices.begin(), trace.slices.end());
  return trace;
}

}  // namespace lockstep::testing
