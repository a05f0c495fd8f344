package gguf

import "fmt"

// Type says how the elements of a tensor are stored, numbered like ggml's enum ggml_type.
type Type uint32

// The types of single numbers, and of the blocks of package ggml.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	IQ4_NL Type = 20
	I8     Type = 24
	I16    Type = 25
	I32    Type = 26
	I64    Type = 27
	F64    Type = 28
	BF16   Type = 30
	MXFP4  Type = 39
)

// blockLayout is the size of a block.
type blockLayout struct {
	name     string
	elements int64
	bytes    int64
}

// types lists the types of tensors. The missing numbers were types that ggml has removed.
var types = map[Type]blockLayout{
	F32:    {"F32", 1, 4},
	F16:    {"F16", 1, 2},
	Q4_0:   {"Q4_0", 32, 18},
	Q4_1:   {"Q4_1", 32, 20},
	Q5_0:   {"Q5_0", 32, 22},
	Q5_1:   {"Q5_1", 32, 24},
	Q8_0:   {"Q8_0", 32, 34},
	9:      {"Q8_1", 32, 36},
	Q2_K:   {"Q2_K", 256, 84},
	Q3_K:   {"Q3_K", 256, 110},
	Q4_K:   {"Q4_K", 256, 144},
	Q5_K:   {"Q5_K", 256, 176},
	Q6_K:   {"Q6_K", 256, 210},
	15:     {"Q8_K", 256, 292},
	16:     {"IQ2_XXS", 256, 66},
	17:     {"IQ2_XS", 256, 74},
	18:     {"IQ3_XXS", 256, 98},
	19:     {"IQ1_S", 256, 50},
	IQ4_NL: {"IQ4_NL", 32, 18},
	21:     {"IQ3_S", 256, 110},
	22:     {"IQ2_S", 256, 82},
	23:     {"IQ4_XS", 256, 136},
	I8:     {"I8", 1, 1},
	I16:    {"I16", 1, 2},
	I32:    {"I32", 1, 4},
	I64:    {"I64", 1, 8},
	F64:    {"F64", 1, 8},
	29:     {"IQ1_M", 256, 56},
	BF16:   {"BF16", 1, 2},
	34:     {"TQ1_0", 256, 54},
	35:     {"TQ2_0", 256, 66},
	MXFP4:  {"MXFP4", 32, 17},
	40:     {"NVFP4", 64, 36},
	41:     {"Q1_0", 128, 18},
}

// Known reports whether the size of the type's blocks is known.
func (t Type) Known() bool { return types[t].elements > 0 }

// String returns ggml's name of the type, such as Q4_K.
func (t Type) String() string {
	if l, ok := types[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block returns the number of elements of a block and its bytes, 0 and 0 for an
// unknown type.
func (t Type) Block() (elements, bytes int64) {
	l := types[t]
	return l.elements, l.bytes
}
