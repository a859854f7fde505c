#include "comm/step_executor.hpp"

#include "base/error.hpp"
#include "comm/reduce.hpp"

namespace lockstep::comm {
namespace {

using collective::Action;
using collective::Step;

struct Incoming {
  std::byte* target;
  size_t count;
  std::vector<std::byte> staged;  // empty for a copy, which arrives in place
  Work work;
};

class Executor {
 public:
  Executor(const collective::StepList& list, Communicator& group, void* data, size_t count, DataType type,
           ReduceOp op, int tag, const OpOptions& options)
      : list_(list),
        group_(group),
        data_(static_cast<std::byte*>(data)),
        count_(count),
        type_(type),
        op_(op),
        tag_(tag),
        options_(options) {}

  // A round's steps are [first, last). What a round reads it does not write, so receives may be posted first.
  void run_round(size_t first, size_t last) {
    std::vector<Incoming> incoming;
    for (size_t s = first; s < last; ++s)
      if (list_.steps[s].to == group_.rank() && size(list_.steps[s]) != 0)
        incoming.push_back(post(list_.steps[s]));
    for (size_t s = first; s < last; ++s) {
      const Step& step = list_.steps[s];
      if (step.from == group_.rank() && size(step) != 0)
        group_.send(chunk(step), size(step), type_, step.to, tag_, options_);
    }
    for (Incoming& in : incoming) {
      in.work.wait();
      if (in.staged.empty()) continue;
      const std::byte* const sources[] = {in.target, in.staged.data()};
      reduce(sources, in.target, nullptr, in.count, type_, op_);
    }
  }

 private:
  collective::Range range(const Step& step) const {
    return collective::chunk_range(count_, list_.chunks, step.chunk);
  }
  size_t size(const Step& step) const { return range(step).size(); }
  std::byte* chunk(const Step& step) const { return data_ + range(step).begin * size_of(type_); }

  Incoming post(const Step& step) {
    Incoming in{chunk(step), size(step), {}, {}};
    if (step.action == Action::reduce) in.staged.resize(in.count * size_of(type_));
    std::byte* where = in.staged.empty() ? in.target : in.staged.data();
    in.work = group_.irecv(where, in.count, type_, step.from, tag_, options_);
    return in;
  }

  const collective::StepList& list_;
  Communicator& group_;
  std::byte* data_;
  size_t count_;
  DataType type_;
  ReduceOp op_;
  int tag_;
  OpOptions options_;
};

}  // namespace

void run_steps(const collective::StepList& list, Communicator& group, void* data, size_t count, DataType type,
               ReduceOp op, int tag, const OpOptions& options) {
  if (list.ranks != group.size())
    throw UsageError("a step list for " + std::to_string(list.ranks) + " ranks cannot run in group '" +
                     group.name() + "' of " + std::to_string(group.size()));
  Executor executor(list, group, data, count, type, op, tag, options);
  const auto& steps = list.steps;
  for (size_t first = 0; first < steps.size();) {
    size_t last = first;
    while (last < steps.size() && steps[last].round == steps[first].round) ++last;
    executor.run_round(first, last);
    first = last;
  }
}

}  // namespace lockstep::comm
