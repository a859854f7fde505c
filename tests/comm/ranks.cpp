#include "ranks.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "comm/process_ranks.hpp"

namespace lockstep::comm::test {

std::vector<int> everyone(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<std::string> run_threads(int ranks, const RankBody& body, bool abort_on_error) {
  const auto arena = SharedArena::create(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      LocalWorld world(arena, r);
      try {
        body(world);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
        if (abort_on_error) world.abort(e.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

std::vector<std::string> run_processes(int ranks, const RankBody& body) {
  std::vector<std::string> errors;
  for (const RankOutcome& outcome :
       run_in_processes(ranks, [&](World& world) { return body(world), std::string(); }))
    errors.push_back(outcome.error);
  return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(errors[r], "") << "rank " << r;
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace lockstep::comm::test
