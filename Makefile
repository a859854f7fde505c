# make demo   from a fresh Debian 12 machine to a trained and a simulated model
# make test   the same set-up, then every test
#
# Also: setup, build, test-asan, test-tsan, format, clean.

PRESET ?= release
BUILD  := build/$(PRESET)
JOBS   ?= $(shell nproc)

.PHONY: setup build demo test test-asan test-tsan format clean
.DEFAULT_GOAL := build

setup:
	@./.ci/setup

build: setup
	@./.ci/build $(PRESET) all $(JOBS)

# Only the programs, not the tests.
demo: setup
	@./.ci/build release "lockstep lockstep-worker" $(JOBS)
	@echo
	@build/release/lockstep train configs/tiny.toml
	@echo
	@build/release/lockstep simulate configs/llama3-405b-16k.toml
	@echo
	@./.ci/after-demo

# The sanitizers first; ctest's summary of the main run ends the output, and any failure fails the whole.
test: setup
	@status=0; \
	$(MAKE) --no-print-directory test-asan || status=1; \
	$(MAKE) --no-print-directory test-tsan || status=1; \
	./.ci/build $(PRESET) all $(JOBS) || exit 1; \
	[ $$status = 0 ] || echo "FAILED under a sanitizer, see above"; \
	ctest --test-dir $(BUILD) --output-on-failure --progress -j $(JOBS) || status=1; \
	exit $$status

test-asan: setup
	@./.ci/build asan all $(JOBS)
	@ctest --test-dir build/asan --output-on-failure --progress -j $(JOBS) -L fast

test-tsan: setup
	@./.ci/build tsan "test_comm test_sim_threads" $(JOBS)
	@ctest --test-dir build/tsan --output-on-failure --progress -R '^(comm|sim_threads)\.'

format:
	@git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

clean:
	rm -rf build
