#include "plan/search_ranking.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::plan {

namespace {

constexpr double equivalents_differ = 1e-4;  // at most, relative
constexpr size_t most_of_cut = 8;            // that may fit

bool alike(double a, double b) { return std::abs(a - b) <= equivalents_differ * std::abs(b); }

bool faster(const Ranked& a, const Ranked& b) { return a.evaluation.seconds < b.evaluation.seconds; }

// Whether it is, and is counted as, an equivalent of one that is kept.
bool counted(std::vector<Ranked>& kept, const Ranked& ranked) {
  if (kept.empty() || ranked.evaluation.seconds > (1 + equivalents_differ) * kept.back().evaluation.seconds) {
    return false;
  }
  const auto found =
      std::find_if(kept.begin(), kept.end(), [&](const Ranked& one) { return equivalent(one, ranked); });
  if (found == kept.end()) return false;
  ++found->equivalents;
  return true;
}

// `kept`: fastest first, at most so many, of equivalent ones the first.
void keep(std::vector<Ranked>& kept, const Ranked& ranked, size_t most) {
  if (counted(kept, ranked)) return;
  if (kept.size() == most && !faster(ranked, kept.back())) return;
  kept.insert(std::upper_bound(kept.begin(), kept.end(), ranked, faster), ranked);
  if (kept.size() > most) kept.pop_back();
}

}  // namespace

bool equivalent(const Ranked& a, const Ranked& b) {
  const SearchLayout &one = a.layout, &other = b.layout;
  return alike(a.evaluation.seconds, b.evaluation.seconds) && alike(a.evaluation.bytes, b.evaluation.bytes) &&
         one.tp == other.tp && one.cp == other.cp && one.pp == other.pp;
}

void Ranking::take(const SearchLayout& layout, const Evaluation& evaluation) {
  ++evaluated_;
  const Ranked ranked{layout, evaluation};
  const double bytes = evaluation.bytes;
  const Fit fit = bytes <= (1 - memory_accuracy) * capacity_   ? Fit::surely
                  : bytes <= (1 + memory_accuracy) * capacity_ ? Fit::perhaps
                                                               : Fit::no;
  note_cut(ranked, fit);
  if (!smallest_ || bytes < smallest_->evaluation.bytes) smallest_ = ranked;
  if (bytes <= capacity_) ++valid_;
  if (fit == Fit::no) return;
  keep(fit == Fit::surely ? surely_ : perhaps_, ranked, most_);
  if (fit == Fit::surely) note_front(ranked);
}

void Ranking::note_cut(const Ranked& ranked, Fit fit) {
  const SearchLayout& l = ranked.layout;
  const Cut cut{l.tp, l.cp, l.pp, l.virtual_stages == 1, l.zero == 3};
  if (newest_cut_ == nullptr || newest_cut_->first != cut) newest_cut_ = &*cuts_.try_emplace(cut).first;
  OfCut& of = newest_cut_->second;
  if (fit == Fit::surely && (!of.surely || faster(ranked, *of.surely))) of.surely = ranked;
  if (fit == Fit::perhaps) keep(of.perhaps, ranked, most_of_cut);
  if (!of.smallest || ranked.evaluation.bytes < of.smallest->evaluation.bytes) of.smallest = ranked;
}

void Ranking::note_front(const Ranked& ranked) {
  const auto smaller = [](const Ranked& a, const Ranked& b) {
    return a.evaluation.bytes < b.evaluation.bytes;
  };
  auto place = std::upper_bound(front_.begin(), front_.end(), ranked, smaller);
  if (place != front_.begin() && std::prev(place)->evaluation.seconds <= ranked.evaluation.seconds) return;
  auto end = place;
  while (end != front_.end() && end->evaluation.seconds >= ranked.evaluation.seconds) ++end;
  front_.insert(front_.erase(place, end), ranked);
}

std::vector<Ranked> Ranking::fastest() const {
  std::vector<Ranked> all;
  std::merge(surely_.begin(), surely_.end(), perhaps_.begin(), perhaps_.end(), std::back_inserter(all),
             faster);
  return all;
}

double Ranking::complete_until() const {
  double until = std::numeric_limits<double>::infinity();
  for (const std::vector<Ranked>* kept : {&surely_, &perhaps_}) {
    if (kept->size() == most_) until = std::min(until, kept->back().evaluation.seconds);
  }
  return until;
}

std::vector<Ranked> Ranking::fastest_of(const Cuts& cuts) const {
  std::optional<Ranked> sure;
  std::vector<Ranked> out;
  for (const auto& [cut, of] : cuts_) {
    if (!cuts(cut)) continue;
    if (of.surely && (!sure || faster(*of.surely, *sure))) sure = of.surely;
    out.insert(out.end(), of.perhaps.begin(), of.perhaps.end());
  }
  std::stable_sort(out.begin(), out.end(), faster);
  if (!sure) return out;
  out.erase(std::lower_bound(out.begin(), out.end(), *sure, faster), out.end());
  out.push_back(*sure);
  return out;
}

std::optional<Ranked> Ranking::smallest_of(const Cuts& cuts) const {
  std::optional<Ranked> out;
  for (const auto& [cut, of] : cuts_) {
    if (!cuts(cut)) continue;
    if (!out || of.smallest->evaluation.bytes < out->evaluation.bytes) out = of.smallest;
  }
  return out;
}

}  // namespace lockstep::plan
