#include "resilience/signal_descriptor.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace lockstep::resilience {

SignalDescriptor::SignalDescriptor(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) {
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw RunError(std::string("cannot watch for signals: signalfd: ") + std::strerror(error));
  }
}

SignalDescriptor::~SignalDescriptor() {
  take();
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalDescriptor::take() {
  std::vector<int> numbers;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    numbers.push_back(static_cast<int>(info.ssi_signo));
  }
  return numbers;
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
}

}  // namespace lockstep::resilience
