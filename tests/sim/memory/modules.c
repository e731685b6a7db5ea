/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries: what is read of their text, when they take memory, and that
 * variables are real. The argument is LAZY or EAGER.
 */
#include "check.h"

static struct simcard *page;
static bool lazy;

static const char text[] =
	"// a module as compilers write it\n"
	".version 7.8\n.target sm_80\n.address_size 64\n"
	"// tranche_sim_module 5000000\n"
	"// tranche_sim_kernel fixed 1500\n"
	".global .align 4 .u32 counter = 42;\n"
	".visible .global .align 8 .b8 table[24] = {1, 2, 0x3};\n"
	".global .attribute(.managed) .align 8 .u64 shared_one;\n"
	".extern .global .u32 elsewhere;\n"
	".const .f32 ratio = 0f3F800000;\n"
	".func (.param .b32 r) helper(.param .b32 a)\n{\n\t.reg .b32 %r<3>;\n\tret;\n}\n"
	"/* .entry not_a_kernel() { } */\n"
	".visible .entry _Z5timedyPiS_f(\n"
	"\t.param .u64 _Z5timedyPiS_f_param_0,\n"
	"\t.param .u64 .ptr .global .align 4 _Z5timedyPiS_f_param_1,\n"
	"\t.param .align 4 .b8 _Z5timedyPiS_f_param_2[12],\n"
	"\t.param .f32 p3\n)\n.maxntid 256, 1, 1\n{\n\t{ .reg .pred %p<2>; }\n\tret;\n}\n"
	".entry fixed(.param .u32 x) { ret; }\n"
	".entry none() { ret; }\n";

static void the_text_is_read(CUmodule module)
{
	CUfunction functions[4], function;
	unsigned count;
	size_t offset, size;
	const char *name;
	int value;

	OK(cuModuleGetFunctionCount(&count, module));
	EQUAL(3, count);
	OK(cuModuleEnumerateFunctions(functions, 4, module));
	OK(cuFuncGetName(&name, functions[1]));
	CHECK(strcmp(name, "fixed") == 0);
	OK(cuModuleGetFunction(&function, module, "_Z5timedyPiS_f"));
	CHECK(function == functions[0]);
	const size_t offsets[] = {0, 8, 16, 28}, sizes[] = {8, 8, 12, 4};
	for (unsigned i = 0; i < 4; i++) {
		OK(cuFuncGetParamInfo(function, i, &offset, &size));
		CHECK(offset == offsets[i] && size == sizes[i]);
	}
	FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 4, &offset, &size));
	FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "not_a_kernel"));
	FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "helper"));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
	EQUAL(1024, value);
	OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
	EQUAL(65536, value);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
}

static void variables_are_real(CUmodule module)
{
	CUdeviceptr address, base;
	size_t size;

	OK(cuModuleGetGlobal_v2(&address, &size, module, "counter"));
	EQUAL(4, size);
	EQUAL(42, *(uint32_t *)(uintptr_t)address);
	OK(cuModuleGetGlobal_v2(&address, &size, module, "table"));
	EQUAL(24, size);
	CHECK(memcmp((void *)(uintptr_t)address, (char[24]){1, 2, 3}, 24) == 0);
	OK(cuMemGetAddressRange_v2(&base, &size, address + 23));
	CHECK(base == address && size == 24);
	OK(cuModuleGetGlobal_v2(&address, NULL, module, "ratio"));
	CHECK(*(float *)(uintptr_t)address == 1.0f);
	FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&address, &size, module, "elsewhere"));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
}

static void memory_is_taken_when_it_is_needed(void)
{
	CUmodule module;
	CUfunction function;
	CUmoduleLoadingMode mode;
	CUfunctionLoadingState state;

	OK(cuModuleGetLoadingMode(&mode));
	EQUAL(lazy ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING, mode);
	OK(cuModuleLoadData(&module, text));
	EQUAL(lazy ? 0 : 3 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuModuleEnumerateFunctions(&function, 1, module));
	OK(cuFuncIsLoaded(&state, function));
	EQUAL(lazy ? CU_FUNCTION_LOADING_STATE_UNLOADED : CU_FUNCTION_LOADING_STATE_LOADED, state);
	OK(cuFuncLoad(function));
	EQUAL(3 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuFuncIsLoaded(&state, function));
	EQUAL(CU_FUNCTION_LOADING_STATE_LOADED, state);
	the_text_is_read(module);
	variables_are_real(module);
	OK(cuModuleUnload(module));
	EQUAL(0, held(page, SIMCARD_MODULE));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncLoad(function));
}

static void launching_loads(void)
{
	CUmodule module;
	CUfunction function;

	OK(cuModuleLoadData(&module, text));
	OK(cuModuleEnumerateFunctions(&function, 1, module));
	uint64_t nanoseconds = 1;
	void *parameters[] = {&nanoseconds, &nanoseconds, (char[12]){0}, &(float){0}};
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	OK(cuCtxSynchronize());
	EQUAL(3 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuModuleUnload(module));
}

static void libraries_load_into_each_context(CUcontext first)
{
	CUlibrary library, of;
	CUkernel kernel, kernels[3];
	CUfunction function;
	CUcontext second;
	CUmodule module;
	CUdeviceptr address;
	size_t size;
	unsigned count;
	const char *name;

	OK(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	EQUAL(lazy ? 0 : 3 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuLibraryGetKernelCount(&count, library));
	EQUAL(3, count);
	OK(cuLibraryEnumerateKernels(kernels, 3, library));
	OK(cuLibraryGetKernel(&kernel, library, "none"));
	CHECK(kernel == kernels[2]);
	OK(cuKernelGetName(&name, kernel));
	CHECK(strcmp(name, "none") == 0);
	OK(cuKernelGetLibrary(&of, kernel));
	CHECK(of == library);
	FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "nobody"));
	OK(cuKernelGetFunction(&function, kernel));
	EQUAL(3 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuLibraryGetModule(&module, library));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
	OK(cuLibraryGetGlobal(&address, &size, library, "counter"));
	FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal(&address, &size, library, "shared_one"));
	OK(cuLibraryGetManaged(&address, &size, library, "shared_one"));
	EQUAL(8, size);
	OK(cuCtxCreate_v2(&second, 0, 0));
	OK(cuKernelGetFunction(&function, kernel));
	EQUAL(6 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuCtxDestroy_v2(second));
	EQUAL(3 * FRAME, held(page, SIMCARD_MODULE));
	OK(cuCtxSetCurrent(first));
	OK(cuLibraryUnload(library));
	EQUAL(0, held(page, SIMCARD_MODULE));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetKernelCount(&count, library));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&function, kernel));
}

static void what_is_no_text_is_refused(void)
{
	static const struct {
		const char *image;
		CUresult result;
	} images[] = {
		{"", CUDA_ERROR_INVALID_IMAGE},
		{"hello", CUDA_ERROR_INVALID_IMAGE},
		{"\x7f" "ELF", CUDA_ERROR_NOT_SUPPORTED},
		{"\x50\xed\x55\xba", CUDA_ERROR_NOT_SUPPORTED},
		{"\x01\x02", CUDA_ERROR_INVALID_IMAGE},
		{".version 7.0\n", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".entry k(", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".entry k(.param .u64", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".entry k(.param .u65 x) {}", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".entry k() {", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".global .u32 x[4", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".global .u32 x[2] = {1, 2, 3};", CUDA_ERROR_INVALID_PTX},
		{PTX_HEAD ".global .u8 x[99999999999999];", CUDA_ERROR_INVALID_PTX},
		{".version 8.0\n.target sm_90\n", CUDA_ERROR_NO_BINARY_FOR_GPU},
	};
	CUmodule module;

	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++)
		FAILS(images[i].result, cuModuleLoadData(&module, images[i].image));
	FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nowhere/at/all"));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
}

static void what_does_not_fit_is_refused(void)
{
	static const char huge[] = PTX_HEAD "// tranche_sim_module 100000000000\n.entry k() { }\n";
	CUmodule module;
	CUfunction function;

	if (lazy) {
		OK(cuModuleLoadData(&module, huge));
		FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuModuleGetFunction(&function, module, "k"));
		OK(cuModuleUnload(module));
	} else {
		FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadData(&module, huge));
	}
	EQUAL(0, held(page, SIMCARD_MODULE));
}

static void modules_come_from_files(void)
{
	char path[] = "/tmp/module-XXXXXX";
	int fd = mkstemp(path);
	CUmodule module;
	CUlibrary library;

	CHECK(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
	close(fd);
	OK(cuModuleLoad(&module, path));
	OK(cuModuleUnload(module));
	OK(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryUnload(library));
	unlink(path);
}

static void occupancy(void)
{
	CUmodule module;
	CUfunction function;
	int blocks, grid, size;

	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetFunction(&function, module, "none"));
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0));
	EQUAL(page->threads_per_multiprocessor / 256, blocks);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &size, function, NULL, 0, 0));
	CHECK(size > 0 && size <= 1024 && grid % (int)page->multiprocessors == 0);
	OK(cuModuleUnload(module));
}

int main(int argc, char **argv)
{
	CUcontext context;

	CHECK(argc == 2);
	lazy = strcmp(argv[1], "LAZY") == 0;
	setenv("CUDA_MODULE_LOADING", argv[1], 1);
	page = card_page(0);
	context = new_context(0);
	memory_is_taken_when_it_is_needed();
	launching_loads();
	libraries_load_into_each_context(context);
	what_is_no_text_is_refused();
	what_does_not_fit_is_refused();
	modules_come_from_files();
	occupancy();
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	BOOKS(page);
	return 0;
}
