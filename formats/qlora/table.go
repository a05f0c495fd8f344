package qlora

import "onnxquant/internal/kernels"

// Table is a set of 16 values that codes represent.
type Table uint8

// The tables. The zero Table is NF4.
const (
	NF4 Table = iota
	FP4
)

var tables = [...]struct {
	name    string
	values  [16]float32
	nearest *kernels.Nearest
	limited *kernels.Nearest // for Codec.Reciprocal
}{
	NF4: {name: "nf4", values: [16]float32{
		-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
		-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
		0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
		0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
	}},
	FP4: {name: "fp4", values: [16]float32{
		0, 0.0625 / 12.0, 8.0 / 12.0, 1, 4.0 / 12.0, 6.0 / 12.0, 2.0 / 12.0, 3.0 / 12.0,
	}},
}

func init() {
	fp4 := &tables[FP4].values
	for i, v := range fp4[:8] {
		fp4[i+8] = -v
	}
	for t := range tables {
		d := &tables[t]
		d.nearest = kernels.NewNearest(d.values[:])
		d.limited = limited(Table(t))
	}
}

// String returns the table's name, nf4 or fp4.
func (t Table) String() string {
	if !t.valid() {
		return "unknown table"
	}
	return tables[t].name
}

func (t Table) valid() bool { return int(t) < len(tables) }

// Values returns the values of the codes 0 … 15.
func (t Table) Values() [16]float32 { return tables[t].values }
