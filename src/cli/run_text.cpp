#include "cli/run_text.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/units.hpp"
#include "model/parameters.hpp"

namespace lockstep::cli {

std::string layout_text(const config::ParallelConfig& p) {
  std::vector<std::string> axes;
  const std::pair<const char*, int64_t> all[] = {{"TP", p.tp}, {"CP", p.cp}, {"PP", p.pp}, {"DP", p.dp}};
  for (const auto& [name, size] : all) {
    if (size > 1) axes.push_back(fmt::format("{}{}", name, size));
  }
  return axes.empty() ? "one rank" : fmt::format("{}", fmt::join(axes, " x "));
}

std::string run_text(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  std::string text =
      fmt::format("{}: {} parameters, {}", run.name,
                  format_count(static_cast<double>(model::parameter_count(run.model))), layout_text(p));
  if (p.pp > 1) text += fmt::format(", {}", config::to_string(p.schedule));
  if (p.virtual_stages > 1) text += fmt::format(" with {} virtual stages", p.virtual_stages);
  text += fmt::format(", {} micro-batch{}", run.micro_batches(), run.micro_batches() == 1 ? "" : "es");
  return text +
         fmt::format("; {} tokens a step", format_thousands(run.train.global_batch * run.train.sequence));
}

std::string program_path() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "lockstep";
  const std::string near = self.lexically_proximate(std::filesystem::current_path(error)).string();
  if (near.starts_with("..")) return self.string();
  return near.find('/') == std::string::npos ? "./" + near : near;
}

}  // namespace lockstep::cli
