// Signals as something to poll: while an object lives they are blocked and come out of its descriptor.
#pragma once

#include <csignal>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep::resilience {

class SignalDescriptor {
 public:
  // Blocks the signals in the calling thread. A signal that this process ignores stays blocked and comes out
  // too. RunError when the system refuses.
  explicit SignalDescriptor(std::initializer_list<int> signals);
  ~SignalDescriptor();  // takes what is pending, then restores the mask
  SignalDescriptor(const SignalDescriptor&) = delete;
  SignalDescriptor& operator=(const SignalDescriptor&) = delete;

  int fd() const { return fd_; }
  std::vector<int> take();  // numbers of all signals that are pending, without waiting

 private:
  int fd_ = -1;
  sigset_t before_{};
};

// "SIGKILL" for 9; "signal 77" for one without a name.
std::string signal_name(int number);

}  // namespace lockstep::resilience
