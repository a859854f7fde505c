// Turns the executed ops of the traced steps into spans.
#pragma once

#include <filesystem>
#include <vector>

#include "nn/op_log.hpp"
#include "observe/span.hpp"
#include "parallel/layout.hpp"

namespace lockstep::train {

class SpanWriter {
 public:
  // `rank` of the layout's mesh.
  SpanWriter(const parallel::Layout& layout, int rank);

  void add_step(int64_t step, const std::vector<nn::OpRecord>& records);
  void save(const std::filesystem::path& path) const { recorder_.save(path); }

 private:
  // The id that both ends of a pipeline message compute.
  uint64_t message_id(int64_t step, const nn::OpRecord& record, bool forward, bool sent) const;

  const parallel::Layout& layout_;
  parallel::Coordinates at_;
  observe::SpanRecorder recorder_;
};

}  // namespace lockstep::train
