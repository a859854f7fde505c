#include "cost/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/terminal_text.hpp"
#include "base/units.hpp"
#include "model/parameters.hpp"

namespace lockstep::cost {

namespace {

struct PartColour {
  std::string_view part;
  int red, green, blue;
};
constexpr std::array<PartColour, 11> colours = {{{"compute", 76, 155, 232},
                                                 {"tp", 240, 160, 75},
                                                 {"cp", 215, 127, 184},
                                                 {"pp", 142, 140, 240},
                                                 {"dp", 63, 182, 139},
                                                 {"optimizer", 217, 196, 90},
                                                 {"forward", 76, 155, 232},
                                                 {"backward", 156, 201, 245},
                                                 {"bad", 239, 106, 106},
                                                 {"good", 63, 182, 139},
                                                 {"beat", 127, 209, 255}}};

const char* meaning(std::string_view part) {
  if (part == "data") return "waiting for the batch";
  if (part == "compute") return "forward and backward kernels";
  if (part == "tp") return "tensor-parallel collectives";
  if (part == "cp") return "context-parallel collectives";
  if (part == "pp") return "pipeline messages not hidden";
  if (part == "dp") return "gradient and parameter collectives not hidden";
  if (part == "bubble") return "idle by the schedule alone";
  if (part == "optimizer") return "norm and optimizer kernels";
  return "waiting for slower ranks at the end";
}

}  // namespace

std::string Style::paint(std::string_view part, std::string_view text) const {
  const auto found =
      std::find_if(colours.begin(), colours.end(), [&](const auto& c) { return c.part == part; });
  if (!colour || found == colours.end()) return std::string(text);
  return fmt::format("\x1b[38;2;{};{};{}m{}\x1b[0m", found->red, found->green, found->blue, text);
}

std::string Style::bold(std::string_view text) const {
  return colour ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

std::string Style::dim(std::string_view text) const {
  return colour ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

void TextTable::header(std::vector<std::string> cells) { rows_.push_back({std::move(cells), "", true}); }

void TextTable::row(std::vector<std::string> cells, std::string_view part) {
  rows_.push_back({std::move(cells), std::string(part), false});
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (const Row& row : rows_) {
    widths.resize(std::max(widths.size(), row.cells.size()), 0);
    for (size_t i = 0; i < row.cells.size(); ++i) widths[i] = std::max(widths[i], columns(row.cells[i]));
  }
  std::string out;
  for (const Row& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const std::string& cell = row.cells[i];
      const std::string pad(widths[i] - columns(cell), ' ');
      line += i == 0 ? "  " + style_.paint(row.part, cell) + pad : "  " + pad + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += (row.header ? style_.dim(line) : line) + "\n";
  }
  return out;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string step_text(const StepFigures& f, std::string_view origin, const Style& style) {
  std::string out = fmt::format("{} a step  {}\n", style.bold(format_seconds(f.seconds)),
                                style.dim(fmt::format("({})", origin)));
  out += fmt::format(
      "{} tokens at {} tokens/s; {} a GPU; pipeline bubble {}\n"
      "MFU {} with attention counted as full, {} as causal\n",
      format_count(static_cast<double>(f.tokens)), format_count(f.tokens_per_second),
      format_quantity(f.tflops_per_gpu * 1e12, "FLOP/s"), percent(f.bubble_fraction), percent(f.mfu),
      percent(f.mfu_causal));
  out += "\nWhere the step goes, mean over ranks; the parts add up to it.\n";
  TextTable table(style);
  table.header({"part", "time", "of the step"});
  const auto values = f.split.values();
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string_view name = StepSplit::names[i];
    if (name == "cp" && values[i] == 0) continue;
    table.row({fmt::format("{:<9}  {}", name, meaning(name)), format_seconds(values[i]),
               percent(values[i] / f.seconds)},
              name);
  }
  return out + table.text();
}

std::string run_line(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  std::string line = fmt::format("{}: {} parameters on {} x {}\ntp {} x cp {} x pp {} x dp {}, {}", run.name,
                                 format_count(static_cast<double>(model::parameter_count(run.model))),
                                 format_thousands(p.world_size()), run.cluster.gpu, p.tp, p.cp, p.pp, p.dp,
                                 config::to_string(p.schedule));
  if (p.virtual_stages > 1) line += fmt::format(", {} chunks a stage", p.virtual_stages);
  line += fmt::format(", zero {}", p.zero);
  if (p.gradient_scatter == config::GradientScatter::micro_batch) {
    line += ", scattering every micro-batch";
  }
  if (!p.recompute.empty()) {
    line += fmt::format("\nrecompute {}", fmt::join(p.recompute, ", "));
    if (p.recompute_every > 1) line += fmt::format(" in one of {} layers", p.recompute_every);
  }
  line += "\n";
  const int64_t micro_batches = run.micro_batches();
  line += fmt::format("{} micro-batch{} of {} x {} tokens", format_thousands(micro_batches),
                      micro_batches == 1 ? "" : "es", p.micro_batch, format_thousands(run.train.sequence));
  if (p.logical_replicas() != p.dp) {
    line += fmt::format(", for {} logical replicas in {} round{}", p.logical_replicas(), p.rounds(),
                        p.rounds() == 1 ? "" : "s");
  }
  return line + "\n";
}

}  // namespace lockstep::cost
