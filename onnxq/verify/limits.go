package verify

import (
	"onnxquant/spec"
)

// Default limits, in dB. docs/verify.md says how they were chosen.
const (
	LeastSQNR         = 0.5  // of a weight whose codes have 2 bits
	LeastFineSQNR     = 6.0  // of another weight
	LeastBlockSQNR    = 0.1  // of its worst block, if the error of the block matters
	LeastCoarseSQNR   = -7.0 // of its worst superblock, if codes have 2 bits and the scales in it a scale
	LeastCoarseCosine = 0.3  // of its worst superblock, not in dB
	MostMisfit        = 3.0  // of a weight of more than 2 bits: compare.WeightMatch.Misfit
	LeastBlockGain    = 0.55 // of a block of more than 2 bits that is like the weight: compare.WeightMatch.WorstGain
	MostBlockGain     = 1.7  // of a block of more than 2 bits that is like the weight
	LeastOutputSQNR   = 0.0  // of an output
	LeastCosine       = 0.5  // of an output, not in dB
)

// Default limits of codes that compensate each other's errors (GPTQ and similar algorithms), as the
// record of the model says. With gptq, codes of more than 2 bits stay near the weights.
const (
	LeastCalibratedSQNR      = -3   // in dB, of a weight whose codes have 2 bits
	LeastCalibratedFineSQNR  = 1    // in dB, of another weight, except for gptq
	LeastCalibratedBlockSQNR = -15  // in dB, of a block
	LeastCalibratedBlockGain = 0.15 // of a block of more than 2 bits that is like the weight
	LeastBlockCosine         = -0.3 // of a block of 2 bits
	LeastBestBlockCosine     = -0.6 // of a block of 2 bits, with algorithm best
	LeastFineBlockCosine     = -0.2 // of another block
	MostCalibratedMisfit     = 15.0 // in dB, except for gptq
	MostGPTQMisfit           = 5.0  // in dB
	LeastGain                = 0.55 // of a weight: compare.WeightMatch.Gain
	MostGain                 = 1.35 // of a weight
)

// Limits are the limits that a comparison used: those of Options or the defaults.
type Limits struct {
	SQNR              float64  `json:"sqnr_db"`              // least of a weight whose codes have 2 bits
	FineSQNR          float64  `json:"fine_sqnr_db"`         // least of another weight
	BlockSQNR         float64  `json:"block_sqnr_db"`        // least of the worst block of a weight whose codes have 2 bits
	FineBlockSQNR     float64  `json:"fine_block_sqnr_db"`   // least of the worst block of another weight
	BlockCosine       float64  `json:"block_cosine"`         // least of the block that is least like a weight whose codes have 2 bits; -1: none
	FineBlockCosine   float64  `json:"fine_block_cosine"`    // least of the block that is least like another weight; -1: none
	CoarseBlockSQNR   float64  `json:"coarse_block_sqnr_db"` // least of the worst superblock of a weight whose codes have 2 bits
	CoarseBlockCosine float64  `json:"coarse_block_cosine"`  // least of the superblock that is least like a weight whose codes have 2 bits
	Misfit            float64  `json:"misfit_db"`            // most of a weight of more than 2 bits
	LeastGain         float64  `json:"least_gain"`           // of a weight; 0: none
	MostGain          float64  `json:"most_gain"`            // of a weight; 0: none
	LeastBlockGain    float64  `json:"least_block_gain"`     // of a block of more than 2 bits that is like the weight; 0: none
	MostBlockGain     float64  `json:"most_block_gain"`      // of a block of more than 2 bits that is like the weight; 0: none
	OutputSQNR        float64  `json:"output_sqnr_db"`       // least of an output
	Cosine            float64  `json:"cosine"`               // least of an output
	MaxError          *float64 `json:"max_error,omitempty"`
}

// limits returns the limits of the options for a model whose codes were found so.
func (o *Options) limits(codes solver) Limits {
	l := Limits{
		SQNR: LeastSQNR, FineSQNR: LeastFineSQNR, BlockSQNR: LeastBlockSQNR, FineBlockSQNR: LeastBlockSQNR, BlockCosine: -1, FineBlockCosine: -1,
		CoarseBlockSQNR: LeastCoarseSQNR, CoarseBlockCosine: LeastCoarseCosine, Misfit: MostMisfit, OutputSQNR: LeastOutputSQNR, Cosine: LeastCosine, MaxError: o.MaxError,
	}
	if codes.algorithm != spec.AWQ && !codes.kquant {
		l.LeastBlockGain, l.MostBlockGain = LeastBlockGain, MostBlockGain
	}
	if codes.algorithm != "" {
		l.BlockSQNR, l.BlockCosine, l.FineBlockCosine = LeastCalibratedBlockSQNR, LeastBlockCosine, LeastFineBlockCosine
		l.LeastGain, l.MostGain = LeastGain, MostGain
	}
	if codes.data {
		l.SQNR, l.FineBlockSQNR, l.Misfit = LeastCalibratedSQNR, LeastCalibratedBlockSQNR, MostGPTQMisfit
	}
	if codes.data && codes.algorithm != spec.GPTQ {
		l.FineSQNR, l.Misfit = LeastCalibratedFineSQNR, MostCalibratedMisfit
	}
	if codes.algorithm == spec.Best {
		l.BlockCosine = LeastBestBlockCosine
	}
	if codes.data {
		l.LeastBlockGain = min(l.LeastBlockGain, LeastCalibratedBlockGain)
		l.CoarseBlockSQNR, l.CoarseBlockCosine = l.BlockSQNR, l.BlockCosine
	}
	if o.MinSQNR != nil {
		l.CoarseBlockSQNR = min(l.CoarseBlockSQNR, *o.MinSQNR)
		l.SQNR, l.FineSQNR, l.BlockSQNR, l.OutputSQNR = *o.MinSQNR, *o.MinSQNR, min(l.BlockSQNR, *o.MinSQNR), *o.MinSQNR
		l.FineBlockSQNR = min(l.FineBlockSQNR, *o.MinSQNR)
	}
	if o.MinOutputSQNR != nil {
		l.OutputSQNR = *o.MinOutputSQNR
	}
	if o.MinCosine != nil {
		l.Cosine = *o.MinCosine
	}
	return l
}

// LimitsGiven reports whether a limit is given. The default limits find only broken models.
func (o *Options) LimitsGiven() bool {
	return o.MinSQNR != nil || o.MinOutputSQNR != nil || o.MinCosine != nil || o.MaxError != nil
}
