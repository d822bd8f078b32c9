# build.mk -- the kernels under the emulator; included by the Makefile.
#
# The sources of cuda/ are compiled by $(CXX) three times: plain, with ASan and
# UBSan, and with the race checker (whose callbacks race.cc defines in place of
# the thread sanitizer's). Each time they make one whole test program, which
# has the emulated backend where a user's program has the GPU, and two programs
# of the emulator's own tests. Only kernels are compiled three times; the rest
# of the program is that of the build at hand.
EMU_VARIANTS := plain asan race
# what a GPU does in one instruction is a call of libm without; the programs run
# where they are built
EMU_CPU   := $(if $(shell grep -m1 ' avx2' /proc/cpuinfo 2>/dev/null | grep -ow fma),\
               -mavx2 -mfma)
# lines without variables: half the time to compile. A null that is followed and
# an access beyond its object ASan sees, too
EMU_plain := -O2 -g1 $(EMU_CPU)
EMU_asan  := -O1 -g1 $(EMU_CPU) -fsanitize=address,undefined \
             -fno-sanitize-recover=undefined -fno-sanitize=null,object-size
EMU_race  := -O1 -g1 $(EMU_CPU) -fsanitize=thread
EMU_LINK_asan := -fsanitize=address,undefined
EMU_CU    := $(wildcard cuda/*/*.cu)
EMU_CC    := $(wildcard tests/emu/*.cc)
EMU_C     := $(wildcard tests/emu/*.c)
EMU       := $(BUILD)/emu
EMU_BARE  := bad emu_test prims
# no contraction, as in the rest of the build: same bits in all variants
EMU_CXX   = $(CXX) -std=c++17 -ffp-contract=off -Wall -Wextra -Wshadow \
            -Wno-unknown-pragmas $(if $(CI),-Werror) -I. -Itests/emu \
            -MMD -MP
EMU_HOST  := $(EMU)/backend.o $(EMU)/table.o \
             $(filter-out $(BUILD)/engine/backend/backend.o $(BUILD)/cuda/%,$(LIB_OBJ))

emulated: $(foreach v,$(EMU_VARIANTS),$(EMU)/$v/run $(EMU_BARE:%=$(EMU)/$v/%)) \
          $(EMU)/plain/segengine $(EMU)/plain/sweep

$(EMU)/%.o: tests/emu/%.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,compile)$(EMU_CXX) -O3 -g $(EMU_CPU) -c -o $@ $<

# the two C files that know which backends there are
$(EMU)/backend.o: engine/backend/backend.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -DSEG_CUDA -c -o $@ $<
$(EMU)/table.o: cuda/device/cuda.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -DSEG_CUDA -c -o $@ $<

# tests of what only the emulated device can be told to do
$(EMU)/%.o: tests/emu/%.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(COMPILE) -DSEG_CUDA -Itests/emu \
	  -DEMU_NCCL='"$(abspath $(EMU_NCCL))"' -c -o $@ $<

# in the place of NCCL; it takes the emulated streams from the program
EMU_NCCL := $(EMU)/libnccl.so.2
$(EMU_NCCL): tests/emu/nccl/nccl.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(call SHOW,link)$(EMU_CXX) -O2 -g -fPIC -shared -o $@ $<

define EMU_RULES
EMU_RT_$1 := $$(patsubst tests/emu/%.cc,$(EMU)/%.o,\
               $(if $(filter race,$1),$(EMU_CC),$(filter-out %/race.cc,$(EMU_CC))))
$(EMU)/$1/%.o: cuda/%.cu $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(call SHOW,compile)$$(EMU_CXX) $(EMU_$1) -x c++ -c -o $$@ $$<
$(EMU)/$1/%.o: tests/emu/%.cu $(BUILD)/settings
	@mkdir -p $$(@D)
	$$(call SHOW,compile)$$(EMU_CXX) $(EMU_$1) -x c++ -c -o $$@ $$<
$(EMU)/$1/run: $(TEST_OBJ) $(EMU_C:tests/emu/%.c=$(EMU)/%.o) \
               $(EMU_CU:cuda/%.cu=$(EMU)/$1/%.o) $$(EMU_RT_$1) \
               $(EMU_HOST) | $(EMU_NCCL)
	@echo '$$^ $(LIBS)' > $$@.inputs # mutants.sh links them again
	$$(call SHOW,link)$(CXX) $(EMU_LINK_$1) $(WL)-E -pthread -o $$@ $$^ $(LIBS)
$(EMU_BARE:%=$(EMU)/$1/%): %: %.o $$(EMU_RT_$1)
	$$(call SHOW,link)$(CXX) $(EMU_LINK_$1) -pthread -o $$@ $$^
endef
$(foreach v,$(EMU_VARIANTS),$(eval $(call EMU_RULES,$v)))

# the whole program, for what is joined in Lua
$(EMU)/plain/segengine: $(BUILD)/lua/main.o $(LUA_OBJ) $(EMU_RT_plain) \
                        $(EMU_CU:cuda/%.cu=$(EMU)/plain/%.o) $(EMU_HOST) | $(EMU_NCCL)
	$(call SHOW,link)$(CXX) $(WL)-E -pthread -o $@ $^ $(LUA_LIB) $(LIBS)

# the bench of convolutions, to see that it runs
$(EMU)/plain/sweep: $(BUILD)/tests/gpu/sweep.o $(EMU_RT_plain) \
                    $(EMU_CU:cuda/%.cu=$(EMU)/plain/%.o) $(EMU_HOST) | $(EMU_NCCL)
	$(call SHOW,link)$(CXX) $(WL)-E -pthread -o $@ $^ $(LIBS)

.PHONY: emulated
-include $(wildcard $(EMU)/*.d $(EMU)/*/*.d) $(BUILD)/tests/gpu/sweep.d
