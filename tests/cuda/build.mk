# build.mk -- the kernels under the emulator; included by the Makefile.
#
# The sources of cuda/ are compiled by $(CXX) twice: plain, and checked. In the
# checked build the thread sanitizer's callbacks, which race.cc defines, find
# races and check the address of each access; UBSan checks arithmetic, alignment
# and the bounds of local arrays; and the runtime of ASan is linked for the red
# zones of its heap, which race.cc and the emulated cudaMemcpy check. Each build
# makes one test program with the emulated device as its GPU, and three programs
# that test the emulator. Only kernels are compiled twice; the other objects are
# shared with the ordinary build.
EMU_VARIANTS := plain checked
# without these flags single instructions of a GPU (fma) become calls of libm; the
# programs run on the machine that builds them
EMU_CPU   := $(if $(shell grep -m1 ' avx2' /proc/cpuinfo 2>/dev/null | grep -ow fma),\
               -mavx2 -mfma)
# -g1, line numbers without variables: half the time to compile. The race checker
# reports an access through a null pointer, so UBSan need not
EMU_plain   := -O2 -g1 $(EMU_CPU)
EMU_checked := -O1 -g1 $(EMU_CPU) -fsanitize=thread,undefined \
               -fno-sanitize-recover=undefined -fno-sanitize=null
EMU_LINK_checked := -fsanitize=address,undefined
EMU_LINK  := $(CXX) $(WL)--compress-debug-sections=zlib $(WL)--build-id=sha1 -pthread
EMU_CU    := $(wildcard cuda/*/*.cu)
EMU_CC    := $(wildcard tests/cuda/emulator/*.cc)
EMU_C     := $(wildcard tests/cuda/kernels/*.c)
EMU       := $(BUILD)/emu
EMU_BARE  := bad emu_test prims prims_sm90
# no contraction, as in the rest of the build: same bits in all variants
EMU_CXX   = $(CXX) -std=c++17 -DSEG_SM90 -ffp-contract=off -Wall -Wextra -Wshadow \
            -Wno-unknown-pragmas $(if $(CI),-Werror) -I. -Itests/cuda/emulator \
            -MMD -MP
EMU_HOST  := $(EMU)/backend.o $(EMU)/table.o \
             $(filter-out $(BUILD)/engine/backend/backend.o $(BUILD)/cuda/%,$(LIB_OBJ))

# the kernels in the checked build, for CI, soaks and `make emulated`: see tests/all
EMU_RUNS  := plain $(if $(CI)$(filter soak emulated,$(MAKECMDGOALS)),checked)

emulated: $(EMU_RUNS:%=$(EMU)/%/run) \
          $(foreach v,$(EMU_VARIANTS),$(EMU_BARE:%=$(EMU)/$v/%)) \
          $(EMU)/plain/segengine $(EMU)/plain/sweep

$(EMU)/%.o: tests/cuda/emulator/%.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,compile)$(EMU_CXX) -O3 -g1 $(EMU_CPU) -c -o $@ $<

# the C files that know the backends of the program
$(EMU)/backend.o: engine/backend/backend.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -DSEG_CUDA -c -o $@ $<
$(EMU)/table.o: cuda/device/cuda.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -DSEG_CUDA -c -o $@ $<

# tests that need settings of the emulated device
$(EMU)/kernels/%.o: tests/cuda/kernels/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) $(TEST_DEBUG) -DSEG_CUDA -Itests/cuda/emulator \
	  -DEMU_NCCL='"$(abspath $(EMU_NCCL))"' -c -o $@ $<

# the substitute for NCCL; it uses the emulated streams of the program
EMU_NCCL := $(EMU)/libnccl.so.2
$(EMU_NCCL): tests/cuda/emulator/nccl/nccl.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,link)$(EMU_CXX) -O2 -g1 -fPIC -shared -o $@ $<

define EMU_RULES
EMU_RT_$1 := $$(patsubst tests/cuda/emulator/%.cc,$(EMU)/%.o,\
               $(if $(filter checked,$1),$(EMU_CC),$(filter-out %/race.cc,$(EMU_CC))))
$(EMU)/$1/%.o: cuda/%.cu $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(call SHOW,compile)$$(EMU_CXX) $(EMU_$1) -x c++ -c -o $$@ $$<
$(EMU)/$1/%.o: tests/cuda/emulator/%.cu $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(call SHOW,compile)$$(EMU_CXX) $(EMU_$1) -x c++ -c -o $$@ $$<
$(EMU)/$1/run: $(TEST_OBJ) $(EMU_C:tests/cuda/kernels/%.c=$(EMU)/kernels/%.o) \
               $(EMU_CU:cuda/%.cu=$(EMU)/$1/%.o) $$(EMU_RT_$1) \
               $(EMU_HOST) | $(EMU_NCCL)
	@echo '$$^ $(LIBS)' > $$@.inputs # mutants.sh links them again
	$$(call SHOW,link)$(EMU_LINK) $(EMU_LINK_$1) $(WL)-E -o $$@ $$^ $(LIBS)
$(EMU_BARE:%=$(EMU)/$1/%): %: %.o $$(EMU_RT_$1)
	$$(call SHOW,link)$(EMU_LINK) $(EMU_LINK_$1) -o $$@ $$^
endef
$(foreach v,$(EMU_VARIANTS),$(eval $(call EMU_RULES,$v)))

# the whole program, for what is joined in Lua; it names CUDA among its features
$(EMU)/system.o: lua/bind/system.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -isystem $(LUA_INC) -DSEG_CUDA -c -o $@ $<
$(EMU)/plain/segengine: $(BUILD)/lua/main.o $(EMU)/system.o \
                        $(filter-out %/bind/system.o,$(LUA_OBJ)) $(EMU_RT_plain) \
                        $(EMU_CU:cuda/%.cu=$(EMU)/plain/%.o) $(EMU_HOST) | $(EMU_NCCL)
	$(call SHOW,link)$(EMU_LINK) $(WL)-E -o $@ $^ $(LUA_LIB) $(LIBS)

# the benchmark of convolutions, to test that it runs
$(EMU)/plain/sweep: $(BUILD)/tests/gpu/sweep.o $(EMU_RT_plain) \
                    $(EMU_CU:cuda/%.cu=$(EMU)/plain/%.o) $(EMU_HOST) | $(EMU_NCCL)
	$(call SHOW,link)$(EMU_LINK) $(WL)-E -o $@ $^ $(LIBS)

.PHONY: emulated
-include $(wildcard $(EMU)/*.d $(EMU)/*/*.d $(EMU)/*/*/*.d) $(BUILD)/tests/gpu/sweep.d
