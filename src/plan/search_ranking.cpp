#include "plan/search_ranking.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::plan {

namespace {

constexpr double twins_differ = 1e-4;  // at most, relative

bool alike(double a, double b) { return std::abs(a - b) <= twins_differ * std::abs(b); }

bool twins(const Ranked& a, const Ranked& b) {
  const SearchLayout &one = a.layout, &other = b.layout;
  return alike(a.evaluation.seconds, b.evaluation.seconds) && alike(a.evaluation.bytes, b.evaluation.bytes) &&
         one.tp == other.tp && one.cp == other.cp && one.pp == other.pp;
}

}  // namespace

void Ranking::take(const SearchLayout& layout, const Evaluation& evaluation) {
  ++evaluated_;
  const Ranked ranked{layout, evaluation};
  const bool fits = evaluation.bytes <= capacity_;
  note_cut(ranked, fits);
  if (!smallest_ || evaluation.bytes < smallest_->evaluation.bytes) smallest_ = ranked;
  if (!fits) return;
  ++valid_;
  note_best(ranked);
  note_front(ranked);
}

void Ranking::note_cut(const Ranked& ranked, bool fits) {
  const SearchLayout& l = ranked.layout;
  const Cut cut{l.tp, l.cp, l.pp, l.virtual_stages == 1, l.zero == 3};
  if (newest_cut_ == nullptr || newest_cut_->first != cut) newest_cut_ = &*cuts_.try_emplace(cut).first;
  OfCut& of = newest_cut_->second;
  const Evaluation& e = ranked.evaluation;
  if (fits && (!of.fastest || e.seconds < of.fastest->evaluation.seconds)) of.fastest = ranked;
  if (!of.smallest || e.bytes < of.smallest->evaluation.bytes) of.smallest = ranked;
}

void Ranking::note_best(const Ranked& ranked) {
  const auto faster = [](const Ranked& a, const Ranked& b) {
    return a.evaluation.seconds < b.evaluation.seconds;
  };
  if (is_twin(ranked)) return;
  if (best_.size() == most_ && !faster(ranked, best_.back())) return;
  best_.insert(std::upper_bound(best_.begin(), best_.end(), ranked, faster), ranked);
  if (best_.size() > most_) best_.pop_back();
}

bool Ranking::is_twin(const Ranked& ranked) {
  if (best_.empty() || ranked.evaluation.seconds > (1 + twins_differ) * best_.back().evaluation.seconds)
    return false;
  const auto found =
      std::find_if(best_.begin(), best_.end(), [&](const Ranked& one) { return twins(one, ranked); });
  if (found == best_.end()) return false;
  ++found->twins;
  return true;
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

std::optional<Ranked> Ranking::best_of(const Cut& cut) const {
  const auto found = cuts_.find(cut);
  if (found == cuts_.end()) return std::nullopt;
  return found->second.fastest ? found->second.fastest : found->second.smallest;
}

}  // namespace lockstep::plan
