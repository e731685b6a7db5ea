# SPDX-License-Identifier: Apache-2.0
#
# The C of this project: the sharing runtime, the simulated driver, and the
# client programs of the tests. Everything goes to build/native/FLAVOUR/:
#
#   runtime/   libcuda.so.1 and libnvidia-ml.so.1 of the sharing runtime
#   sim/       libcuda-real.so.1 and libnvidia-ml-real.so.1, the simulated driver
#   bin/       tranche-simcard
#   clients/   one program for each file of tests/clients
#   hollow/    a libcuda-real.so.1 that does nothing, for benchmarks
#
# FLAVOUR is release, or a sanitizer: asan (with UBSan) or tsan.

FLAVOUR ?= release
# V=1 shows the commands.
QUIET = $(if $(V),,@)
NATIVE = build/native/$(FLAVOUR)
CC ?= gcc

NATIVE_CFLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wmissing-prototypes -Wstrict-prototypes -Wshadow \
	-fno-strict-aliasing -fPIC -g -pthread -Icdi/abi
NATIVE_CFLAGS_release := -O2
NATIVE_CFLAGS_asan := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
NATIVE_CFLAGS_tsan := -O1 -fno-omit-frame-pointer -fsanitize=thread
NATIVE_CC = $(CC) $(NATIVE_CFLAGS) $(NATIVE_CFLAGS_$(FLAVOUR))

NATIVE_HEADERS = $(wildcard cdi/abi/*.h cdi/runtime/*.h cdi/runtime/*/*.h cdi/simdriver/*.h cdi/simdriver/*/*.h tests/clients/*.h)

# Stubs carry only a name: what is linked against them asks for that name when it
# is loaded. The real files are mounted, or are the simulated driver's.
STUBS := build/native/stubs
$(STUBS)/%.so.1: cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(CC) -shared -nostdlib -x c /dev/null -Wl,-soname,$*.so.1 -o $@

SIM_COMMON = $(wildcard cdi/simdriver/card/*.c)
SIM_CUDA = $(wildcard cdi/simdriver/cuda/*.c) $(SIM_COMMON)
SIM_NVML = $(wildcard cdi/simdriver/nvml/*.c) $(SIM_COMMON)
RUNTIME_COMMON = $(wildcard cdi/runtime/session/*.c)
RUNTIME_CUDA = $(wildcard cdi/runtime/cuda/*.c) $(RUNTIME_COMMON)
RUNTIME_NVML = $(wildcard cdi/runtime/nvml/*.c) $(RUNTIME_COMMON)
CLIENTS = $(patsubst tests/clients/%.c,$(NATIVE)/clients/%,$(wildcard tests/clients/*.c)) \
	$(patsubst tests/clients/%,$(NATIVE)/clients/%,$(wildcard tests/clients/*.py))

# Loaded once, the libraries stay: they have threads, and descriptors that must not
# be closed while the process lives.
STAYS := -Wl,-z,nodelete

$(NATIVE)/sim/libcuda-real.so.1: $(SIM_CUDA) $(NATIVE_HEADERS) cdi/simdriver/libcuda.map cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) -shared -Icdi/simdriver $(STAYS) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,--version-script,cdi/simdriver/libcuda.map $(SIM_CUDA) -o $@

$(NATIVE)/sim/libnvidia-ml-real.so.1: $(SIM_NVML) $(NATIVE_HEADERS) cdi/simdriver/libnvidia-ml.map cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) -shared -Icdi/simdriver $(STAYS) -Wl,-soname,libnvidia-ml.so.1 -Wl,-Bsymbolic -Wl,--version-script,cdi/simdriver/libnvidia-ml.map $(SIM_NVML) -o $@

# Where containers have the libraries that the runtime stands in front of.
REAL_DIR := /run/tranche/driver

# The runtime enters containers whose glibc is older than this machine's, 2.17 or newer. What
# later versions moved to libc.so.6 is asked of the library that had it then: newer
# ones still answer there, because all that was ever linked asks so. These stubs
# have the functions under the version of then; add to the list what `make check-abi` names.
OLD_libdl.so.2 := dladdr dlclose dlerror dlopen dlsym
OLD_libpthread.so.0 := pthread_attr_setdetachstate pthread_attr_setstacksize pthread_create pthread_detach pthread_getspecific \
	pthread_join pthread_key_create pthread_key_delete pthread_kill pthread_mutex_trylock pthread_once pthread_rwlock_rdlock \
	pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_setspecific \
	pthread_sigmask pthread_yield
OLD_LIBRARIES := $(STUBS)/libdl.so.2 $(STUBS)/libpthread.so.0
$(OLD_LIBRARIES): $(STUBS)/%: cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)echo 'GLIBC_2.2.5 { *; };' >$@.map
	$(QUIET)printf 'void %s(void) {}\n' $(OLD_$*) | $(CC) -shared -nostdlib -fno-builtin -x c - -Wl,-soname,$* -Wl,--version-script,$@.map -o $@

# No start files: nothing is to run when the library is loaded or unloaded. Sanitizers
# come with newer needs of their own.
RUNTIME_LINK_release = -nostartfiles -Wl,--as-needed $(OLD_LIBRARIES)
RUNTIME_LINK = -shared $(STAYS) -fvisibility=hidden -Icdi/runtime -Wl,-Bsymbolic -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
	-Wl,--enable-new-dtags,-rpath,$(REAL_DIR)

$(NATIVE)/runtime/libcuda.so.1: $(RUNTIME_CUDA) $(NATIVE_HEADERS) cdi/runtime/libcuda.map $(STUBS)/libcuda-real.so.1 $(OLD_LIBRARIES) cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) $(RUNTIME_LINK) -Wl,-soname,libcuda.so.1 -Wl,--version-script,cdi/runtime/libcuda.map $(RUNTIME_CUDA) \
		-Wl,--no-as-needed $(STUBS)/libcuda-real.so.1 $(RUNTIME_LINK_$(FLAVOUR)) -o $@

$(NATIVE)/runtime/libnvidia-ml.so.1: $(RUNTIME_NVML) $(NATIVE_HEADERS) cdi/runtime/libnvidia-ml.map $(STUBS)/libnvidia-ml-real.so.1 $(OLD_LIBRARIES) cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) $(RUNTIME_LINK) -Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script,cdi/runtime/libnvidia-ml.map $(RUNTIME_NVML) \
		-Wl,--no-as-needed $(STUBS)/libnvidia-ml-real.so.1 $(RUNTIME_LINK_$(FLAVOUR)) -o $@

$(NATIVE)/bin/tranche-simcard: $(wildcard cdi/simdriver/tool/*.c) $(SIM_COMMON) $(NATIVE_HEADERS) cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) -Icdi/simdriver $(filter %.c,$^) -o $@

# Clients are linked against the driver's libraries as a user's program is, unless
# they have the line "links: nothing". Of the libraries they take only names.
$(NATIVE)/clients/%: tests/clients/%.c $(NATIVE_HEADERS) cdi/native.mk | $(NATIVE)/sim/libcuda-real.so.1 $(NATIVE)/sim/libnvidia-ml-real.so.1
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) $< -o $@ $$(grep -q 'links: nothing' $< || echo $(NATIVE)/sim/libcuda-real.so.1 $(NATIVE)/sim/libnvidia-ml-real.so.1) -ldl

$(NATIVE)/clients/%.py: tests/clients/%.py
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)cp $< $@

# A driver that does nothing, for benchmarks.
$(NATIVE)/hollow/libcuda-real.so.1: tests/bench/hollow/hollow.c $(NATIVE_HEADERS) cdi/native.mk
	@mkdir -p $(@D) && echo 'Making $@'
	$(QUIET)$(NATIVE_CC) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic $< -o $@

NATIVE_SIM = $(NATIVE)/sim/libcuda-real.so.1 $(NATIVE)/sim/libnvidia-ml-real.so.1 $(NATIVE)/bin/tranche-simcard
NATIVE_RUNTIME = $(NATIVE)/runtime/libcuda.so.1 $(NATIVE)/runtime/libnvidia-ml.so.1

.PHONY: native native-sim native-runtime native-clients
native-sim: $(NATIVE_SIM)
native-runtime: $(NATIVE_RUNTIME)
native-clients: $(CLIENTS)
native: native-sim native-runtime native-clients
