// Runs a function as every rank of a world: as threads around one arena, or as forked processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/local_world.hpp"

namespace lockstep::comm::test {

using RankBody = std::function<void(World&)>;

// What each rank threw; empty where it did not. A rank that throws marks itself dead first if
// `abort_on_error`.
std::vector<std::string> run_threads(int ranks, const RankBody& body, bool abort_on_error = true);

// The same with processes, see comm/process_ranks.hpp.
std::vector<std::string> run_processes(int ranks, const RankBody& body);

// All ranks of a world of n.
std::vector<int> everyone(int n);

// Fails the running test for every message that is not empty.
void expect_no_errors(const std::vector<std::string>& errors);

void expect_contains(const std::string& text, const std::string& part);

}  // namespace lockstep::comm::test
