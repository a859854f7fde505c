// A group of the local transport: collectives by rounds, point to point by mailboxes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mailboxes.hpp"
#include "comm/rounds.hpp"

namespace lockstep::comm {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(GroupMemory memory, std::string name, std::vector<int> global_ranks, int rank);
  ~LocalCommunicator() override;

  void send(const void* data, size_t count, DataType type, int to, int tag, const OpOptions& = {}) override;
  [[nodiscard]] Work isend(const void* data, size_t count, DataType type, int to, int tag,
                           const OpOptions& = {}) override;
  [[nodiscard]] Work irecv(void* data, size_t count, DataType type, int from, int tag,
                           const OpOptions& = {}) override;

 protected:
  void run(const CollectiveCall& call) override { rounds_.run(call); }

 private:
  void check_peer(int peer) const;
  Work send_later(const void* data, const Mailboxes::Envelope& what, int to, const OpOptions& options);

  GroupGuard guard_;
  Rounds rounds_;
  std::shared_ptr<Mailboxes> mailboxes_;
  std::vector<std::atomic<int>> queued_sends_;  // by destination: later ones must queue behind
  std::unique_ptr<HelperThread> sender_;        // not the collectives' helper: neither may wait for the other
};

}  // namespace lockstep::comm
