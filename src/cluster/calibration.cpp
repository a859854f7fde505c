#include "cluster/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "config/cluster_file.hpp"
#include "config/schema.hpp"

namespace lockstep::cluster {

namespace {

constexpr double classes_a_decade = 4;

// Kernels of about one size, put together.
struct SizeClass {
  double count = 0;
  double size = 0;     // sums
  double seconds = 0;  //

  double mean_seconds() const { return seconds / count; }
  void add(const SizeClass& other) {
    count += other.count;
    size += other.size;
    seconds += other.seconds;
  }
};

std::vector<SizeClass> classes_of(const std::vector<KernelSample>& samples) {
  std::map<int, SizeClass> classes;
  for (const KernelSample& sample : samples) {
    if (!(sample.size > 0 && sample.seconds > 0 && sample.count > 0)) {
      throw std::invalid_argument("a kernel's size, seconds and count must be above 0");
    }
    const int at = static_cast<int>(std::floor(std::log10(sample.size) * classes_a_decade));
    classes[at].add({sample.count, sample.count * sample.size, sample.count * sample.seconds});
  }
  std::vector<SizeClass> out;
  for (const auto& [at, one] : classes) out.push_back(one);
  return out;
}

// Pools neighbours until none takes less time than a smaller one (Barlow et al., "Statistical Inference under
// Order Restrictions", 1972: pool adjacent violators).
std::vector<SizeClass> ascending(const std::vector<SizeClass>& classes) {
  std::vector<SizeClass> out;
  for (SizeClass next : classes) {
    while (!out.empty() && out.back().mean_seconds() > next.mean_seconds()) {
      next.add(out.back());
      out.pop_back();
    }
    out.push_back(next);
  }
  return out;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("no values, no middle");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double fastest_rate(const std::vector<KernelSample>& samples) {
  double rate = 0;
  for (const KernelSample& sample : samples) rate = std::max(rate, sample.size / sample.seconds);
  return rate;
}

config::Curve fit_curve(const std::vector<KernelSample>& samples, double peak) {
  if (samples.empty()) throw std::invalid_argument("a curve needs samples");
  config::Curve curve;
  for (const SizeClass& one : ascending(classes_of(samples))) {
    // Rounding alone may lift a kernel that set the peak above it.
    const double share = one.size / one.seconds / peak;
    if (share > 1 + 1e-9) throw std::invalid_argument("the peak is below what was measured");
    curve.push_back({one.size / one.count, std::min(share, 1.0)});
  }
  return curve;
}

MessageLine fit_messages(const std::vector<config::TimedTransfer>& messages) {
  if (messages.size() < 2) throw std::invalid_argument("a line needs messages of two sizes");
  const auto by_seconds = [](const auto& a, const auto& b) { return a.seconds < b.seconds; };
  const auto by_bytes = [](const auto& a, const auto& b) { return a.bytes < b.bytes; };
  const auto fastest = std::min_element(messages.begin(), messages.end(), by_seconds);
  const auto largest = std::max_element(messages.begin(), messages.end(), by_bytes);
  return {fastest->seconds, (largest->seconds - fastest->seconds) / largest->bytes};
}

std::string cluster_file_text(const config::ClusterConfig& cluster, const std::vector<std::string>& header) {
  std::string text;
  for (const std::string& line : header) text += line.empty() ? "#\n" : fmt::format("# {}\n", line);
  text += "[cluster]\n";
  config::RunFile run;
  run.cluster = cluster;
  for (const config::Key& key : config::schema()) {
    const bool of_the_run =
        key.name == "preset" || key.name == "device" || key.name == "file" || key.name == "gpus";
    if (key.table != "cluster" || of_the_run || !key.is_built()) continue;
    text += fmt::format("# {}\n{} = {}\n", key.sentence, config::to_key(key.name),
                        config::to_literal(config::read_key(key, run)));
  }
  return text + fmt::format("{}\n", config::calibration_last_line);
}

}  // namespace lockstep::cluster
