#include "sim/transfer_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/json.hpp"
#include "base/units.hpp"
#include "sim/op_transfer.hpp"

namespace lockstep::sim {

namespace {

using model::Axis;
using model::OpKind;
using Counts = std::map<cost::Transfer, int64_t>;

void count_ops(Counts& counts, const parallel::Layout& layout, int stage, const parallel::Action& action,
               int64_t times) {
  for (const model::Op& op : parallel::action_ops(layout, stage, action)) {
    if (const auto transfer = transfer_of(layout, stage, action, op)) counts[*transfer] += times;
  }
}

Counts counts_of(const parallel::Layout& layout, const parallel::Program& program) {
  // Ops do not depend on the micro-batch.
  std::map<std::tuple<parallel::ActionKind, int, int>, std::pair<parallel::Action, int64_t>> actions;
  for (const parallel::Action& action : program.actions) {
    auto& [example, times] = actions[{action.kind, action.chunk, action.peer}];
    example = action;
    ++times;
  }
  Counts counts;
  for (const auto& [key, counted] : actions) {
    count_ops(counts, layout, program.stage, counted.first, counted.second);
  }
  return counts;
}

double bus_share(const ListedTransfer& t) {
  if (t.transfer.kind == OpKind::send) return 1;
  const double share = (t.ranks - 1.0) / t.ranks;
  return t.transfer.kind == OpKind::all_reduce ? 2 * share : share;
}

std::string axis_name(const config::RunFile& run, Axis axis) {
  if (axis == Axis::dp_cp) return run.parallel.cp > 1 ? "dp x cp" : "dp";
  if (axis == Axis::tp_kv) return "tp kv";
  return axis == Axis::pp_ends ? "pp ends" : model::to_string(axis);
}

// Of the step's parts, whose colours they have.
std::string part_of(Axis axis) {
  if (axis == Axis::tp || axis == Axis::tp_kv) return "tp";
  if (axis == Axis::cp) return "cp";
  return axis == Axis::dp_cp ? "dp" : "pp";
}

std::string name_of(const config::RunFile& run, const cost::Transfer& t) {
  if (t.kind != OpKind::send) return fmt::format("{}  {}", axis_name(run, t.axis), model::to_string(t.kind));
  if (run.parallel.pp == 2) return "pp  send";  // the other stage is the next and the one before
  if (t.stage_shift == 1) return "pp  send onward";
  return t.stage_shift == run.parallel.pp - 1 ? "pp  send back"
                                              : fmt::format("pp  send by {} stages", t.stage_shift);
}

std::string over(const cost::Choice& choice) {
  if (choice.over_nvlink && choice.over_nic) return "both";
  return choice.over_nic ? "network" : "node";
}

std::string way_of(const config::RunFile& run, const cost::Choice& choice) {
  std::string way = choice.algorithm;
  const bool has_protocols = way == "ring" || way == "tree" || way == "hierarchical";
  if (has_protocols && run.cluster.low_latency_protocols) way += " " + choice.protocol;
  return way + (choice.as_configured ? "" : " *");
}

}  // namespace

std::vector<ListedTransfer> list_transfers(const parallel::Layout& layout,
                                           const std::vector<parallel::Program>& programs,
                                           cost::TransferPrices& prices) {
  Counts most;
  for (const parallel::Program& program : programs) {
    for (const auto& [transfer, times] : counts_of(layout, program)) {
      most[transfer] = std::max(most[transfer], times);
    }
  }
  std::vector<ListedTransfer> out;
  for (const auto& [transfer, times] : most) {
    ListedTransfer listed{transfer, 2, times, prices.choice(transfer), 0, 0};
    if (listed.choice.algorithm == "none") continue;
    if (transfer.kind != OpKind::send) listed.ranks = layout.mesh().size(transfer.axis);
    const std::vector<double>& of_groups = prices.seconds(transfer).kinds();
    listed.seconds = *std::max_element(of_groups.begin(), of_groups.end());
    if (listed.seconds > 0) {
      listed.bus_bandwidth = bus_share(listed) * static_cast<double>(transfer.bytes) / listed.seconds;
    }
    out.push_back(std::move(listed));
  }
  std::stable_sort(out.begin(), out.end(), [](const ListedTransfer& a, const ListedTransfer& b) {
    return a.seconds_in_all() > b.seconds_in_all();
  });
  return out;
}

std::string transfers_text(const config::RunFile& run, const std::vector<ListedTransfer>& transfers,
                           const cost::Style& style) {
  if (transfers.empty()) return "";
  std::string out =
      "\nHow transfers go: what one takes alone, its bus bandwidth as nccl-tests count it, and how many a\n"
      "rank has at most.\n";
  constexpr size_t most = 12;
  cost::TextTable table(style);
  table.header({"transfer", "bytes", "ranks", "algorithm", "over", "alone", "bus", "a step"});
  bool all_as_configured = true;
  std::set<std::vector<std::string>> rows;  // stages' sizes that look alike are one row
  size_t more = 0;
  double seconds_of_more = 0;
  for (const ListedTransfer& t : transfers) {
    all_as_configured = all_as_configured && t.choice.as_configured;
    const std::vector<std::string> row = {name_of(run, t.transfer),
                                          format_bytes(static_cast<double>(t.transfer.bytes)),
                                          format_thousands(t.ranks),
                                          way_of(run, t.choice),
                                          over(t.choice),
                                          format_seconds(t.seconds),
                                          format_quantity(t.bus_bandwidth, "B/s"),
                                          format_thousands(t.times) + " x"};
    if (rows.contains(row)) continue;
    if (rows.size() < most) {
      table.row(row, part_of(t.transfer.axis));
      rows.insert(row);
    } else {
      ++more;
      seconds_of_more += t.seconds_in_all();
    }
  }
  out += table.text();
  if (more > 0) {
    out += style.dim(fmt::format("  and {} more kind{}, {}{} a step at most", more, more == 1 ? "" : "s",
                                 more == 1 ? "" : "together ", format_seconds(seconds_of_more))) +
           "\n";
  }
  if (!all_as_configured) {
    out +=
        fmt::format("* marks where cluster.collective_algorithm = \"{}\" does not exist: a ring is taken.\n",
                    config::to_string(run.cluster.collective_algorithm));
  }
  return out;
}

Json transfers_json(const std::vector<ListedTransfer>& transfers) {
  Json list = Json::array();
  for (const ListedTransfer& t : transfers) {
    Json one;
    one["kind"] = model::to_string(t.transfer.kind);
    one["axis"] = model::to_string(t.transfer.axis);
    one["bytes"] = t.transfer.bytes;
    one["ranks"] = t.ranks;
    if (t.transfer.kind == OpKind::send) one["stage_shift"] = t.transfer.stage_shift;
    one["times"] = t.times;
    one["algorithm"] = t.choice.algorithm;
    one["protocol"] = t.choice.protocol;
    one["as_configured"] = t.choice.as_configured;
    one["over_nvlink"] = t.choice.over_nvlink;
    one["over_nic"] = t.choice.over_nic;
    one["seconds"] = t.seconds;
    one["bus_bytes_per_second"] = t.bus_bandwidth;
    list.push_back(one);
  }
  return list;
}

}  // namespace lockstep::sim
