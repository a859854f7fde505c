#include "train/span_writer.hpp"

#include "train/weights_hash.hpp"

namespace lockstep::train {

namespace {

constexpr size_t most_spans = size_t{1} << 18;  // 16 MiB a worker; what comes after is counted, not kept

}  // namespace

SpanWriter::SpanWriter(const parallel::Layout& layout, int rank)
    : layout_(layout), at_(layout.mesh().coordinates(rank)), recorder_(rank, most_spans) {}

uint64_t SpanWriter::message_id(int64_t step, const nn::OpRecord& record, bool forward, bool sent) const {
  int sender = record.chunk * layout_.stages() + at_.pp;  // the model's chunk that the message comes from
  if (!sent) sender += forward ? -1 : 1;
  uint64_t id = mix64(static_cast<uint64_t>(step) * 2 + (forward ? 1 : 0));
  for (const int part : {at_.tp, at_.cp, at_.dp, sender, record.micro_batch}) {
    id = mix64(id ^ static_cast<uint64_t>(part + 1)) + 0x9E3779B97F4A7C15u;
  }
  return id;
}

void SpanWriter::add_step(int64_t step, const std::vector<nn::OpRecord>& records) {
  for (const nn::OpRecord& record : records) {
    observe::Span span;
    span.start_ns = record.start_ns;
    span.end_ns = record.end_ns;
    span.bytes = record.bytes;
    span.name = recorder_.name_id(record.name);
    span.step = static_cast<int32_t>(step);
    span.chunk = record.chunk;
    span.micro_batch = record.micro_batch;
    span.stream = record.stream;
    const bool sent = record.name.starts_with("send_");
    if (sent || record.name.starts_with("receive_")) {
      span.message_end = sent ? observe::MessageEnd::sent : observe::MessageEnd::received;
      span.message = message_id(step, record, record.name.ends_with("forward"), sent);
    }
    recorder_.record(span);
  }
}

}  // namespace lockstep::train
