#include "plan/memory_text.hpp"

#include <fmt/format.h>

#include "base/units.hpp"

namespace lockstep::plan {

namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string parts_text(const MemoryReport& memory, const cost::Style& style) {
  const StageMemory& full = memory.fullest();
  cost::TextTable table(style);
  table.header({"part", "bytes", "of the GPU"});
  const auto row = [&](const std::string& name, int64_t bytes) {
    table.row({name, bytes_text(bytes),
               cost::percent(static_cast<double>(bytes) / static_cast<double>(memory.capacity))});
  };
  row("weights", full.weights);
  if (full.gathered > 0) row("gathered parameters", full.gathered);
  row(memory.whole_gradients ? "gradients (whole: gradient_scatter = \"chunk\")" : "gradients",
      full.gradients);
  const char* const moments[] = {"", ", one moment", ", two moments"};
  row(fmt::format("optimizer (master weights{})", moments[memory.moments]), full.optimizer);
  row("activations", full.activations);
  if (full.logits > 0) row("logits and loss", full.logits);
  row("messages on their way", full.messages);
  row("reduced gradients", full.reduced);
  row("workspace of the pass under way", full.workspace);
  row("rotary angles, token places", full.tables);
  if (full.stand_ins > 0) row("stand-ins of weight gradients", full.stand_ins);
  row("margin (assumed)", full.margin);
  row("total", full.total());
  return table.text();
}

bool has_same_parts(StageMemory a, const StageMemory& b) {
  a.stage = b.stage;
  return a == b;
}

// The same by stage, what belongs together in one column; neighbours that are alike in one line.
std::string stages_text(const MemoryReport& memory, const cost::Style& style) {
  std::string out =
      "\nEach stage when it holds most: weights with gathered ones, gradients with reduced ones; other is\n"
      "messages, workspace, tables and margin.\n";
  cost::TextTable table(style);
  table.header({"stage", "weights", "gradients", "optimizer", "activations", "logits", "other", "total",
                "of the GPU"});
  for (size_t first = 0, next = 0; first < memory.stages.size(); first = next) {
    const StageMemory& m = memory.stages[first];
    while (next < memory.stages.size() && has_same_parts(memory.stages[next], m)) ++next;
    const std::string name =
        next - first > 1 ? fmt::format("{} to {}", first, next - 1) : std::to_string(first);
    table.row({name, bytes_text(m.weights + m.gathered), bytes_text(m.gradients + m.reduced),
               bytes_text(m.optimizer), bytes_text(m.activations), bytes_text(m.logits),
               bytes_text(m.other() - m.reduced), bytes_text(m.total()),
               cost::percent(static_cast<double>(m.total()) / static_cast<double>(memory.capacity))});
  }
  return out + table.text();
}

}  // namespace

std::string memory_text(const MemoryReport& memory, const cost::Style& style) {
  const StageMemory& full = memory.fullest();
  const std::string out =
      fmt::format("\nMemory of the fullest GPU, at stage {}, when it holds most: {} of {}, {}.\n", full.stage,
                  bytes_text(full.total()), bytes_text(memory.capacity),
                  memory.fits() ? style.paint("good", "it fits") : style.paint("bad", "it does not fit"));
  const bool several = memory.stages.size() > 1;
  return out + parts_text(memory, style) + (several ? stages_text(memory, style) : "");
}

}  // namespace lockstep::plan
