# segengine -- `make help` lists the targets.
#
# Sources are found by wildcard and headers by the compiler, so a new file needs
# no edit here. Some sources are compiled several times: the reference loops
# once per number type, the vector kernels once per instruction set.

# == settings =================================================================
# Each may be given on the command line: make DICOM=0, make NVCC=, ...
BUILD   ?= build
prefix  ?= /usr/local
libdir  ?= $(prefix)/lib
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX     := $(if $(filter default,$(origin CXX)),g++,$(CXX))
OPT     ?= -O2 -g
WARN    ?= -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wno-format-truncation
CWARN   ?= -Wmissing-prototypes -Wstrict-prototypes
OBJCOPY ?= objcopy
# debug information of the objects of tests: lines without variables, a third of the size
TEST_DEBUG ?= -g1
# sanitizers, such as SAN=address,undefined; use another BUILD with it
SAN     ?=
# CUDA: an empty NVCC builds without; the GPU architectures to build for, or all
CUDA_HOME ?= /usr/local/cuda
GPUS    ?= 75 80 90
GPUS_ALL := 75 80 86 89 90 100 120
# -lineinfo: source lines in kernels, for ncu and compute-sanitizer; the objects
# of matrix products become three times as large
CU_LINES ?=
# executions of each fuzz target in `make fuzz`
RUNS    ?= 100000
# a Python with PyTorch for comparisons and golden tests, if there is one
PYTHON  ?= /usr/bin/python3
# the compiler for aarch64, for `make aarch64`
CROSS   ?= aarch64-linux-gnu-gcc
# the compiler wrapper of the installed MPI, for `make mpi`
MPICC   ?= mpicc
# == end of settings; nothing below needs editing =============================

# Packages fetched without root are in the prefix vendor/prefix.
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
MACHINE   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
OWN       := $(wildcard vendor/prefix/usr)
OWN_LIB   := $(if $(OWN),$(CURDIR)/$(OWN)/lib/$(MULTIARCH))
ROOTS     := $(OWN) /usr /usr/local
LUA_INC   := $(firstword $(wildcard $(addsuffix /include/lua5.4,$(ROOTS)) \
               $(addsuffix /include/lua54,$(ROOTS))))
LUA_LIB   ?= -l:liblua5.4.a
DCMTK     := $(firstword $(wildcard \
               $(addsuffix /include/dcmtk/dcmdata/dctk.h,$(ROOTS))))
DICOM     ?= $(if $(DCMTK),1,0)
# 4.5 and newer: before, the error handlers of libtiff were global to the
# process
LIBTIFF   := $(shell grep -ls TIFFClientOpenExt $(wildcard $(foreach r,$(ROOTS),\
               $r/include/tiffio.h $r/include/$(MULTIARCH)/tiffio.h)))
TIFF      ?= $(if $(LIBTIFF),1,0)
ifeq ($(origin NVCC),undefined)
NVCC := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) \
          $(shell command -v nvcc 2>/dev/null))
endif
VERSION := $(or $(shell sed -n 's/^\#define SEG_VERSION "\(.*\)".*/\1/p' \
             engine/api/segengine.h 2>/dev/null),0.0.0)

# -- sources and objects ------------------------------------------------------
C_SRC := $(wildcard engine/*/*.c cpu/*.c cpu/conv/*.c cpu/lib/*.c cpu/ops/*.c data/*.c \
           data/*/*.c)
C_SRC := $(filter-out $(if $(filter 1,$(DICOM)),data/dicom/dcmtk_none.c) \
           engine/ranks/mpi_module.c \
           data/image/tiff_$(if $(filter 1,$(TIFF)),none,pixels).c,$(C_SRC))
CC_SRC := $(if $(filter 1,$(DICOM)),$(wildcard data/dicom/*.cc))
LUA_C := $(wildcard lua/bind/*.c)
LUA_L := $(filter-out %.d.lua,$(wildcard lua/*.lua lua/*/*.lua))
CU    := $(if $(NVCC),$(wildcard cuda/*/*.cu))
CUDA_C := $(if $(CU),$(wildcard cuda/*/*.c))
REF   := $(wildcard cpu/ref/*.c)
SIMD  := $(wildcard cpu/simd/*.c)
ISAS  := $(if $(filter x86_64,$(MACHINE)),avx512 avx2) \
         $(if $(filter aarch64,$(MACHINE)),neon) portable
# C tests are in the folders of their sources; embed.c is a program of its own
TEST  := $(filter-out tests/engine/api/embed.c,$(wildcard tests/*.c \
           $(addprefix tests/,support/*.c engine/*/*.c ops/*.c cpu/*.c data/*.c data/*/*.c)))
FUZZ  := $(filter-out %/replay.c,$(wildcard tests/fuzz/*.c))
BENCH := $(wildcard tests/bench/*.c)

# A sanitized build can share the kernels of another: those of nvcc, which have no
# sanitizer, and those of cpu/simd
CU_AT ?= $(BUILD)
SIMD_AT ?= $(BUILD)
CU_OBJ := $(CU:%.cu=$(CU_AT)/%.o)
SIMD_OBJ := $(foreach isa,$(ISAS),\
              $(SIMD:cpu/simd/%.c=$(SIMD_AT)/cpu/simd/$(isa)/%.o))
LIB_OBJ := $(C_SRC:%.c=$(BUILD)/%.o) $(CC_SRC:%.cc=$(BUILD)/%.o) \
           $(foreach real,double float,\
             $(REF:cpu/ref/%.c=$(BUILD)/cpu/ref/$(real)/%.o)) \
           $(SIMD_OBJ) $(CU_OBJ) $(CUDA_C:%.c=$(BUILD)/%.o)
LUA_OBJ := $(LUA_C:%.c=$(BUILD)/%.o) $(BUILD)/lua/embedded.o
TEST_OBJ := $(TEST:%.c=$(BUILD)/%.o)
REPLAYS := $(FUZZ:%.c=$(BUILD)/%)
BENCHES := $(BENCH:%.c=$(BUILD)/%)
GPU_TESTS := $(if $(NVCC),$(BUILD)/tests/gpu/prims $(BUILD)/tests/gpu/prims_sm90 \
               $(BUILD)/tests/gpu/rates $(BUILD)/tests/gpu/sweep)
DIST  := $(BUILD)/dist/segengine $(BUILD)/dist/libsegengine.so
PROGRAM := $(if $(filter build,$(BUILD)),,$(BUILD)/)segengine
# next to the program, where the program looks for it
MPI_MODULE := $(dir $(PROGRAM))segengine-mpi.so

# -- flags --------------------------------------------------------------------
# No contraction to fused multiply-add: a*b+c rounds twice wherever it is
# written in C, so the same source gives the same bits at every optimisation
# level.
COMMON := $(OPT) -ffp-contract=off -fPIC -fvisibility=hidden -pthread \
          $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all \
            -fno-omit-frame-pointer) \
          $(if $(CI),$(if $(SAN),,-Werror)) \
          -ffile-prefix-map=$(CURDIR)/= -ffile-prefix-map=./= -MMD -MP
# quoted headers are named from the root of the tree
INC    := -I. \
          $(if $(OWN),-isystem $(OWN)/include \
            -isystem $(OWN)/include/$(MULTIARCH))
DEF    := -D_XOPEN_SOURCE=700 -DSEG_DICOM=$(DICOM) -DSEG_TIFF=$(TIFF) \
          $(if $(CU),-DSEG_CUDA) \
          $(if $(OWN),-DSEG_DICTIONARY='"$(abspath $(firstword $(wildcard \
            $(OWN)/share/libdcmtk*/dicom.dic)))"')
C_ALL   = $(CC) -std=c11 $(DEF) $(INC) $(WARN) $(CWARN) $(COMMON) $(CFLAGS)
CXX_ALL = $(CXX) -std=c++17 $(DEF) $(INC) $(WARN) $(COMMON) $(CXXFLAGS)
REAL_double := -DREAL=double -DREAL_IS_DOUBLE=1 -DPLAIN=ref
REAL_float  := -DREAL=float -DREAL_IS_DOUBLE=0 -DPLAIN=plain
ISA_avx512  := -DISA=avx512 -DLANES=16 -DREGISTERS=32 -mavx512f -mavx512bw -mavx512vl \
               -mavx512dq -mfma -mprefer-vector-width=512
ISA_avx2    := -DISA=avx2 -DLANES=8 -DREGISTERS=16 -mavx2 -mfma
# no scheduling before register allocation: GCC would load all factors of a
# block first, which leaves too few registers for its accumulators
ISA_neon    := -DISA=neon -DLANES=4 -DREGISTERS=32 \
               $(if $(findstring clang,$(CC)),,-fno-schedule-insns)
ISA_portable := -DISA=portable -DLANES=4 -DREGISTERS=16

comma := ,
WL := -Wl$(comma)
# a build id names the program in records of its GPU self-check
LD_ALL := $(if $(filter 1,$(DICOM))$(CU),$(CXX),$(CC)) $(OPT) -pthread \
          $(if $(SAN),-fsanitize=$(SAN)) -Wl,--as-needed $(WL)--build-id=sha1 \
          $(if $(OWN),-L$(OWN_LIB) $(WL)-rpath-link$(comma)$(OWN_LIB))
# rpath, not runpath: it also applies to the dependencies of the libraries
RPATH := $(WL)--disable-new-dtags $(WL)-rpath$(comma)
OWN_RPATH := $(if $(OWN),$(RPATH)$(OWN_LIB))
DCMTK_LIBS := -ldcmjpls -ldcmjpeg -ldcmimgle -ldcmdata -loflog -lofstd
LIBS := $(if $(filter 1,$(DICOM)),$(DCMTK_LIBS)) \
        $(if $(CU),-L$(dir $(NVCC))../lib64 -lcudart_static -lrt) \
        $(if $(filter 1,$(TIFF)),-ltiff) -ljpeg -lz -lm -ldl

# -- targets for users --------------------------------------------------------
all: $(PROGRAM)               ## the program (the default)

lib: $(BUILD)/libsegengine.a $(BUILD)/libsegengine.so  ## both libraries

# the benches too: no other target would notice one that does not compile
test: $(PROGRAM) $(BUILD)/tests/run lib checked $(if $(SAN),,emulated crossed $(BENCHES))  ## the tests; see below
	$(RUN_TESTS) tests/all

bench: $(PROGRAM) $(BENCHES)  ## speed tables
	@set -e; for b in $(BENCHES); do $$b; done
	@if command -v $(PYTHON) > /dev/null; then \
	  $(PYTHON) tests/pytorch/speed.py --program $(PROGRAM) || [ $$? -eq 77 ]; \
	else echo "PyTorch: not here, nor $(PYTHON)"; fi

gallery: $(PROGRAM)           ## pictures of each augmentation of samples
	$(abspath $(PROGRAM)) tests/lua/gallery.lua $(BUILD)/gallery

demo: $(PROGRAM)              ## train the brain U-Net on synthetic patients
	$(abspath $(PROGRAM)) scripts/brain_unet.lua --preset demo

data:                         ## fetch the real head image of the second recipe
	sh vendor/fetch data

layers:                       ## check which folder includes which
	tests/layers

mpi: $(MPI_MODULE)            ## segengine-mpi.so, for mpirun and srun (needs mpicc)

lint:                         ## luacheck, luac, clang-format: report only
	tests/lint

fmt:                          ## clang-format 14 over all C sources
	clang-format-14 -i $$(tests/lint --c-files)

# The targets below need the same rules with other settings, so they start a
# second make.
asan:                         ## every test in a build with ASan and UBSan
	$(MAKE) $(COUNTED) BUILD=$(BUILD)/asan SAN=address,undefined OPT="-O1 -g" test

# the sanitized programs that tests/all runs in addition to the build under test:
# the replays of fuzz corpora, with the kernels of the build under test; for CI and
# soaks also the tests, and all kernels
SANITIZE_ALL := $(CI)$(filter soak checked,$(MAKECMDGOALS))
checked: $(if $(SAN),$(REPLAYS),$(CU_OBJ) $(if $(SANITIZE_ALL),,$(SIMD_OBJ)))
	$(if $(SAN),@:,@$(MAKE) $(COUNTED) BUILD=$(BUILD)/asan CU_AT=$(BUILD) \
	  $(if $(SANITIZE_ALL),,SIMD_AT=$(BUILD)) SAN=address,undefined OPT="-O1 -g1" \
	  replays $(if $(SANITIZE_ALL),sanitized))

replays: $(REPLAYS)
sanitized: $(PROGRAM) $(BUILD)/tests/run

fuzz:                         ## run each fuzz target RUNS times (needs clang)
	$(MAKE) $(COUNTED) BUILD=$(BUILD)/fuzz SAN=fuzzer-no-link,address,undefined \
	  OPT="-O1 -g" CC=clang CXX=clang++ WARN= CWARN= NVCC= fuzzers
	tests/fuzz/run $(BUILD)/fuzz $(RUNS)

fuzzers: $(FUZZ:%.c=$(BUILD)/%-fuzzer)

aarch64: crossed              ## test the operators on aarch64 (needs qemu-user)
	BUILD=$(BUILD) tests/shell/aarch64.sh

# the programs of tests/shell/aarch64.sh: the kernel tests, and segengine if the
# libraries for aarch64 are there (sh vendor/fetch arm64), which doubles the
# time of the build
ARM64   := $(wildcard vendor/arm64/usr)
crossed:
	$(if $(SAN)$(if $(shell command -v $(CROSS) 2>/dev/null),,none),@:,@$(MAKE) $(COUNTED) \
	  BUILD=$(BUILD)/aarch64 CC=$(CROSS) AR=$$($(CROSS) -print-prog-name=ar) \
	  NVCC= DICOM=0 TIFF=0 OWN=$(ARM64) $(BUILD)/aarch64/tests/kernels \
	  $(if $(ARM64),$(BUILD)/aarch64/segengine))

# the programs that tests/all runs with ThreadSanitizer in a soak
threaded:
	$(if $(SAN),@:,@$(MAKE) $(COUNTED) BUILD=$(BUILD)/tsan SAN=thread OPT="-O1 -g" NVCC= \
	  $(BUILD)/tsan/tests/run $(BUILD)/tsan/segengine)

soak: $(PROGRAM) $(BUILD)/tests/run lib checked threaded $(if $(SAN),,emulated crossed)  ## the long tests; see below
	SEG_SOAK=1 $(RUN_TESTS) tests/all
	$(MAKE) $(COUNTED) fuzz RUNS=1000000

coverage:                     ## line coverage of the parsers by the tests
	BUILD=$(BUILD) tests/coverage

install: $(PROGRAM) lib       ## program, libraries, header; DESTDIR, prefix
	install -d $(DEST)$(prefix)/bin $(DEST)$(prefix)/include \
	  $(DEST)$(libdir)/pkgconfig $(DEST)$(share)/scripts/examples
	install $(PROGRAM) $(DEST)$(prefix)/bin/segengine
	$(if $(wildcard $(MPI_MODULE)),install $(MPI_MODULE) $(DEST)$(libdir))
	install -m 644 engine/api/segengine.h $(DEST)$(prefix)/include
	install -m 644 $(BUILD)/libsegengine.a $(DEST)$(libdir)
	install $(BUILD)/libsegengine.so $(DEST)$(libdir)/libsegengine.so.0
	ln -sf libsegengine.so.0 $(DEST)$(libdir)/libsegengine.so
	sed -e 's|@prefix@|$(prefix)|' -e 's|@libdir@|$(libdir)|' \
	  -e 's|@version@|$(VERSION)|' -e 's|@private@|$(STATIC_LIBS)|' \
	  engine/api/segengine.pc.in > $(DEST)$(libdir)/pkgconfig/segengine.pc
	install -m 644 scripts/*.lua $(DEST)$(share)/scripts
	install -m 644 scripts/examples/*.lua $(DEST)$(share)/scripts/examples
	install -m 644 lua/types/*.d.lua $(DEST)$(share)
	$(if $(MAN),install -d $(DEST)$(man1) && \
	  install -m 644 $(MAN) $(DEST)$(man1))
	$(if $(DEST)$(filter /usr /usr/local,$(prefix)),,@printf '%s\n' \
	  'The system does not look into $(prefix) by itself. For the program:' \
	  '  export PATH=$(prefix)/bin:$$PATH' \
	  'and to compile against the library:' \
	  '  export PKG_CONFIG_PATH=$(libdir)/pkgconfig' \
	  '  cc ... $$(pkg-config --cflags --libs segengine) -Wl,-rpath,$(libdir)')

uninstall:                    ## remove the installed files
	rm -f $(DEST)$(prefix)/bin/segengine \
	  $(DEST)$(prefix)/include/segengine.h $(DEST)$(libdir)/libsegengine.* \
	  $(DEST)$(libdir)/segengine-mpi.so \
	  $(DEST)$(libdir)/pkgconfig/segengine.pc $(DEST)$(man1)/segengine.1
	rm -rf $(DEST)$(share)

gpu: $(PROGRAM) $(GPU_TESTS)  ## the programs that tests/gpu/run.sh runs

kit:                          ## a tar for testing a machine with a GPU
	vendor/kit segengine-kit $(BUILD)

dist: $(DIST)                 ## a tar with no dependency but glibc
	vendor/dist segengine-$(VERSION)-linux-$(MACHINE) $(BUILD)/dist $(DIST)

clean:                        ## remove all built files
	rm -rf $(BUILD) $(PROGRAM) $(PROGRAM).debug $(MPI_MODULE)

help:                         ## this list
	@awk -F':.*## ' '/^[a-z0-9]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' \
	  Makefile
	@printf '%s\n' \
	  'Three tiers of tests, and the packages that they take beyond the demo:' \
	  '  sh vendor/bootstrap test     30 MB fetched, 190 MB on the disk; 16 min' \
	  '  bash .ci/run                560 MB, 2.5 GB: with every tool; 31 to 38 minutes on two cores' \
	  '  sh vendor/bootstrap soak    600 MB: long forms, fuzzing; hours'

RUN_TESTS = BUILD=$(BUILD) PROGRAM=$(PROGRAM) SAN=$(SAN) MAKE="$(MAKE)" \
            REPLAYS="$(FUZZ:%.c=$(BUILD)/$(if $(SAN),,asan/)%)"
DEST := $(DESTDIR)
share = $(prefix)/share/segengine
man1  = $(prefix)/share/man/man1
MAN  := $(wildcard lua/segengine.1)
STATIC_LIBS := $(LIBS) $(if $(filter 1,$(DICOM))$(CU),-lstdc++) -pthread

# `make V=1` shows whole commands; otherwise each file has a short line with its
# number and the total. The total comes from one run of `make -n`, and only when
# there is something to make. A sub-make gets the total and counts in the same
# file.
PROGRESS := $(BUILD)/progress
LETTERS   = $(filter-out --%,$(firstword -$(MAKEFLAGS)))
TOTAL     = $(eval TOTAL := $(shell mkdir -p $(BUILD) && : > $(PROGRESS); \
              env -u MAKEFLAGS $(MAKE) -n $(if $(findstring B,$(LETTERS)),-B) \
                $(MAKEOVERRIDES) COUNTING=1 $(MAKECMDGOALS) 2> /dev/null | \
              grep '^: counted ' | cut -d ' ' -f 3 | sort -u | wc -l))$(TOTAL)
# the counting make has not built the kernels of another build (CU_AT)
ifneq ($(and $(COUNTING),$(filter-out $(BUILD),$(CU_AT))),)
$(CU_OBJ): ;
endif
ifneq ($(and $(COUNTING),$(filter-out $(BUILD),$(SIMD_AT))),)
$(SIMD_OBJ): ;
endif
# make -n, -q and -t build nothing
ONLY_SAYS = $(foreach l,n q t,$(findstring $l,$(LETTERS)))
COUNTED   = $(if $(V)$(COUNTING)$(strip $(ONLY_SAYS)),,TOTAL=$(TOTAL) PROGRESS=$(PROGRESS))
NUMBER    = printf . >> $(PROGRESS) && echo \
            "  [$$(wc -c < $(PROGRESS))/$(TOTAL)] $1 $(@:$(BUILD)/%=%)"
SHOW = $(if $(COUNTING),: counted $@ && ,$(if $(V),,@$(if \
         $(strip $(ONLY_SAYS)),echo '  $1 $(@:$(BUILD)/%=%)',$(NUMBER)) && ))
COMPILE = $(call SHOW,compile)$(C_ALL)
LINK    = $(call SHOW,link)$(LD_ALL) $(LDFLAGS)

# -- programs and libraries ---------------------------------------------------
# The debug information of the program moves to PROGRAM.debug, where debuggers look
# for it; reports of sanitizers need it in the program.
SPLIT_DEBUG = @$(OBJCOPY) --only-keep-debug --compress-debug-sections $@ $@.debug && \
  $(OBJCOPY) --strip-debug --add-gnu-debuglink=$@.debug $@
$(PROGRAM): $(BUILD)/lua/main.o $(LUA_OBJ) $(LIB_OBJ)
	$(LINK) $(OWN_RPATH) -o $@ $^ $(LUA_LIB) $(LIBS)
	$(if $(SAN),,$(SPLIT_DEBUG))

# The program without CUDA, from objects of this build: tests/shell/startup.sh
# compares the two programs.
CUDA_KNOWN := engine/backend/backend.o lua/bind/system.o
$(BUILD)/no_cuda/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(subst -DSEG_CUDA,,$(COMPILE)) -isystem $(LUA_INC) -c -o $@ $<
$(BUILD)/no_cuda/segengine: $(BUILD)/lua/main.o \
    $(CUDA_KNOWN:%=$(BUILD)/no_cuda/%) \
    $(filter-out $(BUILD)/cuda/% $(CUDA_KNOWN:%=$(BUILD)/%),$(LUA_OBJ) $(LIB_OBJ))
	$(LINK) $(OWN_RPATH) -o $@ $^ $(LUA_LIB) $(LIBS)

# The only file that uses MPI; the program loads it when an MPI launcher has
# started it.
$(MPI_MODULE): engine/ranks/mpi_module.c engine/base/thread.c engine/ranks/ranks_module.h \
    engine/base/thread.h
	$(call SHOW,link)$(MPICC) -std=c11 -I. $(WARN) $(CWARN) -O2 -g \
	  -D_POSIX_C_SOURCE=200809L -pthread -fPIC -fvisibility=hidden -shared -o $@ \
	  $(filter %.c,$^)

# The debug information of the library, which is half of a program, is compressed
# in programs that are linked for the tests.
LINK_TEST = $(LINK) $(WL)--compress-debug-sections=zlib

# C tests link against an archive, so a test links only the objects that it
# uses; the program itself tests lua/.
# T: a thin archive, which has the paths of the objects instead of their bytes.
$(BUILD)/tests/objects.a: $(LIB_OBJ)
	@rm -f $@ && mkdir -p $(@D)
	$(call SHOW,link)$(AR) qcsT $@ $^

$(BUILD)/tests/run: $(TEST_OBJ) $(BUILD)/tests/objects.a
	$(LINK_TEST) $(OWN_RPATH) -o $@ $^ $(LIBS)

# tests of operators and of the engine: they need only the C library
KERNEL_TESTS := run cpu/simd% engine/base/rng engine/check/compare engine/graph/precision \
                engine/plan/plan_random engine/session/session ops/% \
                $(addprefix support/,bf16_backend networks op_call plan_rig reference_run)
$(BUILD)/tests/kernels.a: $(filter-out $(BUILD)/engine/api/%,\
    $(filter $(BUILD)/engine/% $(BUILD)/cpu/%,$(LIB_OBJ)))
	@rm -f $@ && mkdir -p $(@D)
	$(call SHOW,link)$(AR) qcsT $@ $^

$(BUILD)/tests/kernels: $(filter $(KERNEL_TESTS:%=$(BUILD)/tests/%.o),\
    $(TEST_OBJ)) $(BUILD)/tests/kernels.a
	$(LINK) -o $@ $^ -lm -ldl

$(BENCHES): %: %.o $(BUILD)/tests/objects.a
	$(LINK_TEST) $(OWN_RPATH) -o $@ $^ $(LIBS)

# one program replays the corpora of all targets: it runs the target by whose name
# it is called. libFuzzer wants one name for the function of every target.
$(BUILD)/tests/fuzz/%.o: tests/fuzz/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) $(TEST_DEBUG) \
	  $(if $(findstring fuzzer,$(SAN)),,-DLLVMFuzzerTestOneInput=fuzz_$*) -c -o $@ $<
$(BUILD)/tests/fuzz/replay.o: tests/fuzz/replay.c $(FUZZ) $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) $(TEST_DEBUG) -DTARGETS='$(patsubst tests/fuzz/%.c,TARGET(%),$(FUZZ))' -c -o $@ $<
$(BUILD)/tests/fuzz/replay: $(FUZZ:%.c=$(BUILD)/%.o) $(BUILD)/tests/fuzz/replay.o \
    $(BUILD)/tests/objects.a
	$(LINK) $(OWN_RPATH) -o $@ $^ $(LIBS)
$(REPLAYS): $(BUILD)/tests/fuzz/replay
	@ln -sf replay $@

%-fuzzer: %.o $(BUILD)/tests/objects.a
	$(LINK) -fsanitize=fuzzer $(OWN_RPATH) -o $@ $^ $(LIBS)

# The static library is one object; only the functions of the public header stay
# global in it.
$(BUILD)/exports: engine/api/segengine.h
	@mkdir -p $(@D)
	@sed -n 's/^SEG_API.*[ *]\(seg_[a-z_]*\)(.*/\1/p' $< > $@

$(BUILD)/libsegengine.a: $(LIB_OBJ) $(BUILD)/exports
	$(call SHOW,link)$(LD) -r --force-group-allocation -o $(@:.a=.o) $(LIB_OBJ)
	@$(OBJCOPY) --keep-global-symbols=$(BUILD)/exports $(@:.a=.o)
	@rm -f $@
	@$(AR) qcs $@ $(@:.a=.o) && rm $(@:.a=.o)

$(BUILD)/libsegengine.so: $(LIB_OBJ)
	$(LINK) $(OWN_RPATH) -shared $(WL)-soname$(comma)libsegengine.so.0 \
	  $(if $(SAN),,$(WL)-z$(comma)defs) -o $@ $^ $(LIBS)

# The same two for other machines: they find their libraries relative to
# $ORIGIN.
BESIDE = $(RPATH)'$$ORIGIN$1'
$(BUILD)/dist/segengine: $(BUILD)/lua/main.o $(LUA_OBJ) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(LINK) $(call BESIDE,/lib) -o $@ $^ $(LUA_LIB) $(LIBS)

$(BUILD)/dist/libsegengine.so: $(LIB_OBJ)
	@mkdir -p $(@D)
	$(LINK) $(call BESIDE,) -shared \
	  $(WL)-soname$(comma)libsegengine.so.0 -o $@ $^ $(LIBS)

# -- one rule per kind of source ----------------------------------------------
# A change of settings rebuilds everything; disabled features are reported once,
# here. With unchanged settings no command runs, so that make -n lists only real
# work.
SETTINGS := $(C_ALL) | $(CXX) | $(NVCC) $(GPUS) $(CU_LINES)
BEFORE   := $(if $(wildcard $(BUILD)/settings),$(file < $(BUILD)/settings))
$(BUILD)/settings: $(if $(BEFORE),$(if $(subst x$(BEFORE)x,,x$(SETTINGS)x),FORCE),FORCE)
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(SETTINGS))' | cmp -s - $@ || { \
	  printf '%s\n' '$(subst ','\'',$(SETTINGS))' > $@; \
	  $(if $(NVCC),:,echo "no nvcc: building for the CPU only"); \
	  $(if $(filter 1,$(DICOM)),:,echo "no DICOM: building without DCMTK" \
	    $(if $(DCMTK),,"(its headers were not found)")); \
	  $(if $(filter 1,$(TIFF)),:,echo "no TIFF: building without libtiff" \
	    $(if $(LIBTIFF),,"(no tiffio.h of 4.5 or newer was found)")); }

$(BUILD)/%.o: %.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

$(BUILD)/lua/%.o: lua/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -isystem $(LUA_INC) -c -o $@ $<

$(BUILD)/cuda/%.o: cuda/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -isystem $(dir $(NVCC))../include -c -o $@ $<

$(BUILD)/lua/embedded.c: lua/embed.sh $(LUA_L)
	@mkdir -p $(@D)
	$(call SHOW,link)sh lua/embed.sh $(LUA_L) > $@.new && mv $@.new $@

$(BUILD)/lua/embedded.o: $(BUILD)/lua/embedded.c $(BUILD)/settings
	$(COMPILE) -c -o $@ $<

$(BUILD)/tests/%.o: tests/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) $(TEST_DEBUG) -c -o $@ $<

$(BUILD)/cpu/ref/double/%.o: cpu/ref/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) $(if $(SAN),,-O3) $(REAL_double) -c -o $@ $<

$(BUILD)/cpu/ref/float/%.o: cpu/ref/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) $(if $(SAN),,-O3) $(REAL_float) -c -o $@ $<

define ISA_RULE
$(BUILD)/cpu/simd/$1/%.o: cpu/simd/%.c $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(COMPILE) $$(if $$(SAN),,-O3) $$(ISA_$1) -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call ISA_RULE,$i)))

$(BUILD)/%.o: %.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,compile)$(CXX_ALL) -c -o $@ $<

# only the GPU architectures that this nvcc supports, asked once. The code of
# all but sm_75 is generated from compute_80 PTX, which is also embedded for the
# driver and newer architectures: no kernel depends on its architecture, and one
# PTX for each took half as long again. Units of bf16 and tf32 have no code for
# sm_75, whose tensor cores multiply f16 only
CODES = $(eval CODES := $(filter $(patsubst %,sm_%,\
          $(if $(filter all,$(GPUS)),$(GPUS_ALL),$(GPUS))),\
          $(shell $(NVCC) --list-gpu-code)))$(CODES)
# device code at the smallest size, which this nvcc (12.8 and newer) can decompress
# at load: a third of the default
CU_SMALL = $(eval CU_SMALL := $(if $(shell $(NVCC) --help | \
             grep -e --compress-mode),--compress-mode=size))$(CU_SMALL)
# a * b + c rounds twice, as on the host; kernels that fuse call fmaf
# units with Hopper's own instructions (wgmma, TMA) have code for sm_90a only; the
# program uses them if GPUS has 90
SM90 = $(if $(filter sm_90,$(CODES)),-DSEG_SM90)
CODE   = -gencode arch=$1$(comma)code=$2
CU_FOR = $(if $(findstring sm90,$(notdir $@)),$(call CODE,compute_90a,sm_90a),\
           $(if $(filter %_bf16.o %_tf32.o,$@),,\
             $(foreach c,$(filter sm_75,$(CODES)),$(call CODE,compute_75,$c)))\
           $(foreach c,compute_80 $(filter-out sm_75,$(CODES)),$(call CODE,compute_80,$c)))
CU_ALL = $(NVCC) -std=c++17 -O3 -fmad=false $(CU_SMALL) $(CU_LINES) -I. -DSEG_CUDA \
         $(SM90) $(CU_FOR) -Xcompiler -fPIC,-fvisibility=hidden -MMD -MP
# with CI, compiler messages and PTX are kept for tests/shell/cuda_ptx.sh, which
# otherwise has to compile each kernel once more
CU_KEPT = $(@:.o=.kept)
$(BUILD)/%.o: %.cu $(BUILD)/settings
	@mkdir -p $(@D) $(if $(CI),$(CU_KEPT))
	$(call SHOW,compile)$(CU_ALL) $(if $(CI),-Xptxas -v --keep --keep-dir $(CU_KEPT)) \
	  -c -o $@ $< $(if $(CI),2> $(CU_KEPT)/said || { cat $(CU_KEPT)/said >&2; exit 1; })
	$(if $(CI),@find $(CU_KEPT) -type f ! -name '*.ptx' ! -name said -delete)

# stand-alone programs for a machine with a GPU; prims and prims_sm90 are tests of
# the emulator
$(BUILD)/tests/gpu/%: tests/gpu/%.cu $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,link)$(CU_ALL) -o $@ $<
# ... and one in C from the program's objects
$(BUILD)/tests/gpu/sweep: $(BUILD)/tests/gpu/sweep.o $(BUILD)/tests/objects.a
	$(LINK) $(OWN_RPATH) -o $@ $^ $(LIBS)
$(BUILD)/tests/gpu/%: tests/cuda/emulator/%.cu $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,link)$(CU_ALL) -o $@ $<

include tests/cuda/build.mk

FORCE:
.PHONY: all lib mpi test coverage bench gallery gpu kit demo data layers lint fmt asan checked sanitized \
        fuzz fuzzers replays threaded soak aarch64 crossed clean help install uninstall dist FORCE
.PRECIOUS: $(BUILD)/%.o
.DELETE_ON_ERROR:
-include $(sort $(patsubst %.o,%.d,$(LIB_OBJ) $(LUA_OBJ) $(TEST_OBJ) \
           $(CUDA_KNOWN:%=$(BUILD)/no_cuda/%) \
           $(BUILD)/lua/main.o $(REPLAYS:%=%.o) $(BENCHES:%=%.o) \
           $(BUILD)/tests/fuzz/replay.o) $(GPU_TESTS:%=%.d))
