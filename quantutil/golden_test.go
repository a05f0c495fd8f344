package quantutil_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"onnxquant/internal/testing/golden"
	. "onnxquant/quantutil"
)

func TestGoldenIntQuant(t *testing.T) {
	golden.Run(t, "int_quant", map[string]golden.Func{
		"find_scales": func(c *golden.Case) (golden.Arrays, error) {
			p, err := intParams(c)
			if err != nil {
				return nil, err
			}
			s, zp, err := FindScales(tensor(c, "w"), p.block, p.axis, p.alpha, p.useZeroPoint, p.bits)
			return arrays("scale", s, "zp", zp), err
		},
		"rtn": func(c *golden.Case) (golden.Arrays, error) {
			p, err := intParams(c)
			if err != nil {
				return nil, err
			}
			wq, err := RTN(tensor(c, "w"), tensor(c, "s"), p.block, p.axis, tensor(c, "zp"), p.bits)
			return arrays("wq", wq), err
		},
		"quant_tensor": func(c *golden.Case) (golden.Arrays, error) {
			p, err := intParams(c)
			if err != nil {
				return nil, err
			}
			wq, s, zp, err := QuantTensor(tensor(c, "w"), p.block, p.axis, p.alpha, p.useZeroPoint, p.bits)
			return arrays("wq", wq, "scale", s, "zp", zp), err
		},
		"dq_tensor": func(c *golden.Case) (golden.Arrays, error) {
			p, err := intParams(c)
			if err != nil {
				return nil, err
			}
			w, err := DQTensor(tensor(c, "wq"), tensor(c, "s"), p.block, p.axis, tensor(c, "zp"))
			return arrays("w", w), err
		},
	})
}

func TestGoldenPack(t *testing.T) {
	pack := func(f func(*Tensor, bool) (*Tensor, error)) golden.Func {
		return func(c *golden.Case) (golden.Arrays, error) {
			var signed bool
			if err := c.Param("signed", &signed); err != nil {
				return nil, err
			}
			packed, err := f(tensor(c, "array"), signed)
			return arrays("packed", packed), err
		}
	}
	golden.Run(t, "pack", map[string]golden.Func{
		"pack_float32_to_4bit_optimized": pack(PackFloat32To4BitOptimized),
		"pack_float32_to_4bit_cpp_based": pack(PackFloat32To4BitCppBased),
		"pack_weights_to_int4": func(c *golden.Case) (golden.Arrays, error) {
			packed, err := PackWeightsToInt4(tensor(c, "weight"))
			return arrays("packed", packed), err
		},
	})
}

func TestGoldenMeta(t *testing.T) {
	golden.Run(t, "meta", map[string]golden.Func{
		"get_num_bits": func(c *golden.Case) (golden.Arrays, error) {
			info, name, err := layer(c)
			if err != nil {
				return nil, err
			}
			n, err := GetNumBits(info, name)
			return integer("num_bits", n), err
		},
		"get_num_bits_documented": func(c *golden.Case) (golden.Arrays, error) {
			var info map[string]int
			if err := c.Param("precision_info", &info); err != nil {
				return nil, err
			}
			var name string
			err := c.Param("name", &name)
			return integer("num_bits", GetNumBitsFromPrecision(info, name)), err
		},
		"get_layer_block_size": func(c *golden.Case) (golden.Arrays, error) {
			info, name, err := layer(c)
			if err != nil {
				return nil, err
			}
			def, err := optional(c, "default_block_size")
			return integer("block_size", GetLayerBlockSize(info, name, def)), err
		},
		"get_layer_axis": func(c *golden.Case) (golden.Arrays, error) {
			info, name, err := layer(c)
			if err != nil {
				return nil, err
			}
			def, err := optional(c, "default_axis")
			return integer("axis", GetLayerAxis(info, name, def)), err
		},
		"update_block_size": func(c *golden.Case) (golden.Arrays, error) {
			info, name, err := layer(c)
			if err != nil {
				return nil, err
			}
			block, err := optional(c, "block_size")
			if err != nil {
				return nil, err
			}
			axis, shape, err := axisOf(c)
			if err != nil {
				return nil, err
			}
			n, err := UpdateBlockSize(block, info, name, axis, shape)
			return integer("block_size", n), err
		},
		"update_block_size_documented": func(c *golden.Case) (golden.Arrays, error) {
			var bits, block int
			if err := params(c, "num_bits", &bits, "block_size", &block); err != nil {
				return nil, err
			}
			axis, shape, err := axisOf(c)
			if err != nil {
				return nil, err
			}
			n, err := UpdateBlockSizeForBits(bits, block, axis, shape)
			return integer("block_size", n), err
		},
		"reshape_scales_for_per_channel_nodes": func(c *golden.Case) (golden.Arrays, error) {
			var info layerInfo
			var block int
			if err := params(c, "layer_info", &info, "block_size", &block); err != nil {
				return nil, err
			}
			scales := map[string]*Tensor{}
			for name := range c.Inputs {
				scales[name] = tensor(c, name)
			}
			scales, err := ReshapeScalesForPerChannelNodes(scales, block, info.layers())
			out := golden.Arrays{}
			for name, s := range scales {
				out[name] = array(s)
			}
			return out, err
		},
	})
}

func TestGoldenMX(t *testing.T) {
	golden.Run(t, "mx", map[string]golden.Func{
		"get_amax": func(c *golden.Case) (golden.Arrays, error) {
			var axis, block int
			if err := params(c, "quant_axis", &axis, "block_size", &block); err != nil {
				return nil, err
			}
			amax, err := GetAmax(tensor(c, "w"), axis, block)
			if err != nil {
				return nil, err
			}
			contiguous, err := GetAmaxContiguous(tensor(c, "w"), axis, block)
			return arrays("amax", amax, "amax_contiguous", contiguous), err
		},
		"compute_e8m0": func(c *golden.Case) (golden.Arrays, error) {
			var axis, block int
			var shape []int
			if err := params(c, "quant_axis", &axis, "block_size", &block, "weight_shape", &shape); err != nil {
				return nil, err
			}
			e, err := ComputeE8M0(tensor(c, "amax"), shape, axis, block)
			return arrays("e8m0", e), err
		},
		"mxfp8_encode": nil, // package mx
		"mxfp4_encode": nil,
	})
}

func TestGoldenNVFP4(t *testing.T) {
	golden.Run(t, "nvfp4", map[string]golden.Func{
		"get_weights_scaling_factor_2": func(c *golden.Case) (golden.Arrays, error) {
			s, err := GetWeightsScalingFactor2(tensor(c, "w"))
			bits := binary.LittleEndian.AppendUint32(nil, math.Float32bits(s))
			return golden.Arrays{"ws2": {DType: "float32", Data: bits}}, err
		},
		"get_weights_scaling_factor": func(c *golden.Case) (golden.Arrays, error) {
			var block int
			if err := c.Param("block_size", &block); err != nil {
				return nil, err
			}
			s, err := GetWeightsScalingFactor(tensor(c, "w"), block, float32(tensor(c, "ws2").Data[0]))
			return arrays("ws", s), err
		},
		"nvfp4_quantize": func(c *golden.Case) (golden.Arrays, error) {
			var block int
			if err := c.Param("block_size", &block); err != nil {
				return nil, err
			}
			q, err := Quantize(tensor(c, "w"), block, tensor(c, "ws"), float32(tensor(c, "ws2").Data[0]))
			return arrays("scaled", q), err
		},
		"nvfp4_encode":             nil, // package nvfp4
		"encode_nvfp4_block_scale": nil,
		"cast_fp4_exporter":        nil,
		"cast_fp4_ml_dtypes":       nil,
	})
}

type intParam struct {
	block, axis, bits int
	alpha             float64
	useZeroPoint      bool
}

// intParams reads what the functions of int_quant take; some take not all of it.
func intParams(c *golden.Case) (p intParam, err error) {
	if err := params(c, "block_size", &p.block, "quantize_axis", &p.axis); err != nil {
		return p, err
	}
	if c.Func == "dq_tensor" {
		return p, nil
	}
	if err := c.Param("num_bits", &p.bits); err != nil || c.Func == "rtn" {
		return p, err
	}
	return p, params(c, "alpha", &p.alpha, "use_zero_point", &p.useZeroPoint)
}

// params reads several parameters: names and pointers in turn.
func params(c *golden.Case, namesAndPointers ...any) error {
	for i := 0; i < len(namesAndPointers); i += 2 {
		if err := c.Param(namesAndPointers[i].(string), namesAndPointers[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// tensor returns an input, nil if the case has none of that name.
func tensor(c *golden.Case, name string) *Tensor {
	a, ok := c.Inputs[name]
	if !ok {
		return nil
	}
	typ, ok := ParseDType(a.DType)
	if !ok {
		panic(fmt.Sprintf("%s: input %s is of type %s", c.Name, name, a.DType))
	}
	x, err := FromBytes(typ, a.Data, a.Shape...)
	if err != nil {
		panic(fmt.Sprintf("%s: input %s: %v", c.Name, name, err))
	}
	return x
}

func array(x *Tensor) golden.Array {
	return golden.Array{DType: TypeName(x.DType), Shape: x.Shape, Data: x.Bytes()}
}

// arrays returns outputs from names and tensors in turn, without nil ones.
func arrays(namesAndTensors ...any) golden.Arrays {
	as := golden.Arrays{}
	for i := 0; i < len(namesAndTensors); i += 2 {
		if x := namesAndTensors[i+1].(*Tensor); x != nil {
			as[namesAndTensors[i].(string)] = array(x)
		}
	}
	return as
}

// none stands for Python's None where the functions take an int. They pass it on
// as they do any other.
const none = math.MinInt

func optional(c *golden.Case, name string) (int, error) {
	n := none
	return n, c.Param(name, &n)
}

// integer returns an int64 scalar as the only output, or nothing for none.
func integer(name string, n int) golden.Arrays {
	if n == none {
		return golden.Arrays{}
	}
	return golden.Arrays{name: {DType: "int64", Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}}
}

func axisOf(c *golden.Case) (axis int, shape []int, err error) {
	return axis, shape, params(c, "quantize_axis", &axis, "w_shape", &shape)
}

// layerInfo is a LayerInfo in JSON. A bare number is a precision.
type layerInfo map[string]json.RawMessage

func (l layerInfo) layers() LayerInfo {
	info := LayerInfo{}
	for name, raw := range l {
		var layer Layer
		if json.Unmarshal(raw, &layer.Precision) != nil {
			var fields map[string]*int
			if err := json.Unmarshal(raw, &fields); err != nil {
				panic(err)
			}
			layer = Layer{Precision: fields["precision"], BlockSize: fields["block_size"], Axis: fields["axis"]}
		}
		info[name] = layer
	}
	return info
}

func layer(c *golden.Case) (LayerInfo, string, error) {
	var info layerInfo
	var name string
	err := params(c, "layer_info", &info, "name", &name)
	return info.layers(), name, err
}
