#include "facts/fact.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::facts {

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 4> names = {"holds", "off", "inconsistent", "published"};
  return names[static_cast<size_t>(verdict)];
}

Stated digits(double value, double unit, double carried) {
  const double rounding = 1e-9 * std::abs(value);  // of binary fractions
  return {value, value - unit - carried - rounding, value + unit + carried + rounding, false};
}

Stated about(double value) { return {value, 0.9 * value, 1.1 * value, false}; }

Stated over(double value) {
  constexpr double most = std::numeric_limits<double>::infinity();
  return {value, std::nextafter(value, most), most, false};
}

Stated below(double value) {
  constexpr double least = -std::numeric_limits<double>::infinity();
  return {value, least, std::nextafter(value, least), false};
}

Stated between(double low, double high) { return {(low + high) / 2, low, high, true}; }

Verdict Fact::verdict() const {
  if (decided) return *decided;
  const bool all = std::all_of(figures.begin(), figures.end(),
                               [](const Figure& f) { return f.stated.agrees(f.computed); });
  return all ? Verdict::holds : Verdict::off;
}

std::optional<double> Fact::difference() const {
  std::optional<double> farthest;
  for (const Figure& figure : figures) {
    if (figure.stated.value == 0 || figure.stated.in_words) continue;
    const double share = figure.computed / figure.stated.value - 1;
    if (!farthest || std::abs(share) > std::abs(*farthest)) farthest = share;
  }
  return farthest;
}

const std::vector<SourceName>& source_names() {
  static const std::vector<SourceName> names = {
      {'P', {"the paper, arXiv:2407.21783", "论文 arXiv:2407.21783"}},
      {'A', {"an article with a fact-check matrix", "一篇附事实核对表的文章"}},
      {'B', {"an interactive page", "一个交互式网页"}}};
  return names;
}

const Words& title(Group group) {
  static const std::array<Words, 8> titles = {{{"Model and compute", "模型与算力"},
                                               {"Layout", "并行布局"},
                                               {"Machine and network", "机器与网络"},
                                               {"Pipeline", "流水线"},
                                               {"Step and utilisation", "单步与利用率"},
                                               {"Interruptions and checkpoints", "中断与检查点"},
                                               {"Money, power and cooling", "费用、功率与散热"},
                                               {"From elsewhere", "来自他处"}}};
  return titles[static_cast<size_t>(group)];
}

}  // namespace lockstep::facts
