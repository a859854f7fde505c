#include "observe/perfetto_trace.hpp"

#include <fmt/format.h>

#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace lockstep::observe {
namespace {

using Message = protozero::pbf_writer;
using Tag = protozero::pbf_tag_type;

// Numbers of fields and values, from github.com/google/perfetto, protos/perfetto/trace/...
constexpr Tag trace_packet = 1;  // trace.proto: Trace

namespace packet_field {  // trace_packet.proto: TracePacket
constexpr Tag timestamp = 8, trusted_packet_sequence_id = 10, track_event = 11, interned_data = 12,
              sequence_flags = 13, trace_packet_defaults = 59, track_descriptor = 60;
}
constexpr uint32_t incremental_state_cleared = 1, needs_incremental_state = 2;  // its SequenceFlags

namespace defaults_field {  // trace_packet_defaults.proto: TracePacketDefaults
constexpr Tag track_event_defaults = 11;
}

namespace descriptor_field {  // track_event/track_descriptor.proto: TrackDescriptor
constexpr Tag uuid = 1, process = 3, thread = 4;
}
namespace process_field {  // track_event/process_descriptor.proto: ProcessDescriptor
constexpr Tag pid = 1, legacy_sort_index = 3, process_name = 6;
}
namespace thread_field {  // track_event/thread_descriptor.proto: ThreadDescriptor
constexpr Tag pid = 1, tid = 2, legacy_sort_index = 3, thread_name = 5;
}

namespace event_field {  // track_event/track_event.proto: TrackEvent, and TrackEventDefaults with its numbers
constexpr Tag category_iids = 3, debug_annotations = 4, type = 9, name_iid = 10, track_uuid = 11,
              flow_ids = 47, terminating_flow_ids = 48;
}
constexpr int32_t slice_begin = 1, slice_end = 2;  // its Type

namespace annotation_field {  // track_event/debug_annotation.proto: DebugAnnotation
constexpr Tag name_iid = 1, int_value = 4;
}

namespace interned_field {  // interned_data/interned_data.proto: InternedData
constexpr Tag event_categories = 1, event_names = 2, debug_annotation_names = 3;
}
namespace entry_field {  // track_event.proto: EventCategory, EventName; debug_annotation.proto likewise
constexpr Tag iid = 1, name = 2;
}
constexpr uint64_t category_iid = 1;  // a sequence has one: its stream

// Unique in the trace; a process has 0 in place of a thread.
uint64_t track_uuid(int rank, int thread) {
  return static_cast<uint64_t>(process_id(rank)) << 32 | static_cast<uint64_t>(thread);
}

void add_entry(Message& interned, Tag index, uint64_t iid, std::string_view name) {
  Message entry(interned, index);
  entry.add_uint64(entry_field::iid, iid);
  entry.add_string(entry_field::name, name.data(), name.size());
}

// The names that the track's slices use, by index + 1 (0 is invalid).
void add_names(Message& packet, const SpanFile& file, const Track& track) {
  std::vector<bool> used(file.names.size());
  for (const uint32_t index : track.spans) used[file.spans[index].name] = true;
  Message interned(packet, packet_field::interned_data);
  add_entry(interned, interned_field::event_categories, category_iid, stream_name(track.stream));
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) add_entry(interned, interned_field::event_names, i + 1, file.names[i]);
  }
  for (size_t i = 0; i < argument_names.size(); ++i) {
    add_entry(interned, interned_field::debug_annotation_names, i + 1, argument_names[i]);
  }
}

}  // namespace

PerfettoTraceWriter::PerfettoTraceWriter(const std::filesystem::path& path, int64_t origin_ns)
    : file_(path), path_(path), origin_ns_(origin_ns) {}

bool PerfettoTraceWriter::begins(std::string_view bytes) {
  // The tag of a packet, its length in one to five bytes, then the first two fields that process() writes.
  const auto tag = [](Tag field, char wire_type) {
    return static_cast<char>(field << 3 | static_cast<uint32_t>(wire_type));
  };
  constexpr char varint = 0, counted = 2;
  const std::string fields = {tag(packet_field::trusted_packet_sequence_id, varint), 1,
                              tag(packet_field::sequence_flags, varint), incremental_state_cleared};
  if (!bytes.starts_with(tag(trace_packet, counted))) return false;
  size_t at = 1;
  while (at < bytes.size() && at < 5 && (bytes[at] & 0x80) != 0) ++at;
  return at < bytes.size() && bytes.substr(at + 1).starts_with(fields);
}

uint64_t PerfettoTraceWriter::timestamp(int64_t time_ns) const {
  if (time_ns < origin_ns_) {
    throw RunError(fmt::format("{}: a span at {} ns lies before the trace's begin at {} ns", path_.string(),
                               time_ns, origin_ns_));
  }
  return static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(origin_ns_);
}

void PerfettoTraceWriter::process(int rank, std::string_view name) {
  file_.written();
  Message trace(file_.buffer());
  Message packet(trace, trace_packet);
  packet.add_uint32(packet_field::trusted_packet_sequence_id, ++sequence_);
  packet.add_uint32(packet_field::sequence_flags, incremental_state_cleared);
  Message descriptor(packet, packet_field::track_descriptor);
  descriptor.add_uint64(descriptor_field::uuid, track_uuid(rank, 0));
  Message process(descriptor, descriptor_field::process);
  process.add_int32(process_field::pid, process_id(rank));
  process.add_int32(process_field::legacy_sort_index, rank);
  process.add_string(process_field::process_name, name.data(), name.size());
}

// Opens the track's sequence: where its events go and all names that they refer to.
void PerfettoTraceWriter::describe_track(const SpanFile& file, const Track& track) {
  file_.written();
  Message trace(file_.buffer());
  Message packet(trace, trace_packet);
  packet.add_uint32(packet_field::trusted_packet_sequence_id, ++sequence_);
  packet.add_uint32(packet_field::sequence_flags, incremental_state_cleared);
  const uint64_t uuid = track_uuid(file.rank, thread_id(track));
  {
    Message defaults(packet, packet_field::trace_packet_defaults);
    Message event(defaults, defaults_field::track_event_defaults);
    event.add_uint64(event_field::track_uuid, uuid);
  }
  add_names(packet, file, track);
  Message descriptor(packet, packet_field::track_descriptor);
  descriptor.add_uint64(descriptor_field::uuid, uuid);
  Message thread(descriptor, descriptor_field::thread);
  thread.add_int32(thread_field::pid, process_id(file.rank));
  thread.add_int32(thread_field::tid, thread_id(track));
  thread.add_int32(thread_field::legacy_sort_index, track.place);
  thread.add_string(thread_field::thread_name, track.name);
}

void PerfettoTraceWriter::track(const SpanFile& file, const Track& track) {
  describe_track(file, track);
  std::vector<uint32_t> open;  // slices, the innermost last
  const auto end_innermost = [&] {
    end_slice(file.spans[open.back()]);
    open.pop_back();
  };
  for (const uint32_t index : track.spans) {
    const Span& span = file.spans[index];
    while (!open.empty() && file.spans[open.back()].end_ns <= span.start_ns) end_innermost();
    begin_slice(span);
    open.push_back(index);
  }
  while (!open.empty()) end_innermost();
}

void PerfettoTraceWriter::begin_slice(const Span& span) {
  file_.written();
  Message trace(file_.buffer());
  Message packet(trace, trace_packet);
  packet.add_uint64(packet_field::timestamp, timestamp(span.start_ns));
  packet.add_uint32(packet_field::trusted_packet_sequence_id, sequence_);
  packet.add_uint32(packet_field::sequence_flags, needs_incremental_state);
  Message event(packet, packet_field::track_event);
  event.add_uint64(event_field::category_iids, category_iid);
  for (const SliceArgument& argument : SliceArguments(span)) {
    Message annotation(event, event_field::debug_annotations);
    annotation.add_uint64(annotation_field::name_iid, argument.name + 1);
    annotation.add_int64(annotation_field::int_value, argument.value);
  }
  event.add_enum(event_field::type, slice_begin);
  event.add_uint64(event_field::name_iid, uint64_t{span.name} + 1);
  if (span.message_end == MessageEnd::sent) event.add_fixed64(event_field::flow_ids, span.message);
}

void PerfettoTraceWriter::end_slice(const Span& span) {
  file_.written();
  Message trace(file_.buffer());
  Message packet(trace, trace_packet);
  packet.add_uint64(packet_field::timestamp, timestamp(span.end_ns));
  packet.add_uint32(packet_field::trusted_packet_sequence_id, sequence_);
  packet.add_uint32(packet_field::sequence_flags, needs_incremental_state);
  Message event(packet, packet_field::track_event);
  event.add_enum(event_field::type, slice_end);
  if (span.message_end == MessageEnd::received) {
    event.add_fixed64(event_field::terminating_flow_ids, span.message);
  }
}

void PerfettoTraceWriter::close() { file_.close(); }

}  // namespace lockstep::observe
