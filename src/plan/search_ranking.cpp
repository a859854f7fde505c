#include "plan/search_ranking.hpp"

#include <algorithm>

namespace lockstep::plan {

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
  OfCut& of = cuts_[{l.tp, l.cp, l.pp, l.virtual_stages == 1, l.zero == 3}];
  const Evaluation& e = ranked.evaluation;
  if (fits && (!of.fastest || e.seconds < of.fastest->evaluation.seconds)) of.fastest = ranked;
  if (!of.smallest || e.bytes < of.smallest->evaluation.bytes) of.smallest = ranked;
}

void Ranking::note_best(const Ranked& ranked) {
  const auto faster = [](const Ranked& a, const Ranked& b) {
    return a.evaluation.seconds < b.evaluation.seconds;
  };
  if (best_.size() == most_ && !faster(ranked, best_.back())) return;
  best_.insert(std::upper_bound(best_.begin(), best_.end(), ranked, faster), ranked);
  if (best_.size() > most_) best_.pop_back();
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
