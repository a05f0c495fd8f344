package verify

import "onnxquant/formats/errstat"

// Default limits, in dB. docs/verify.md says how they were chosen.
const (
	LeastSQNR         = 0.5  // of a weight whose codes have 2 bits
	LeastFineSQNR     = 6.0  // of another weight
	LeastByteSQNR     = 15.0 // of a weight whose codes have 8 bits
	LeastBlockSQNR    = 0.1  // of its worst block, if the error of the block matters
	LeastCoarseSQNR   = -7.0 // of its worst superblock, if codes have 2 bits and the scales in it a scale
	LeastCoarseCosine = 0.3  // of its worst superblock, not in dB
	MostMisfit        = 3.0  // of a weight of more than 2 bits: compare.WeightMatch.Misfit
	LeastBlockGain    = 0.55 // of a block of more than 2 bits that is like the weight: compare.WeightMatch.WorstGain
	MostBlockGain     = 1.7  // of a block of more than 2 bits that is like the weight
	MostStray         = 18.0 // of an element of a weight: compare.WeightMatch.Stray
	MostClipped       = 0.95 // of the error of a weight of more than 2 bits and less than 20 dB: compare.WeightMatch.Clipped
	LeastOutputSQNR   = 0.0  // of an output of a model that is not as it was written
	LeastCosine       = 0.5  // of such an output, not in dB
)

// Default limits of codes that compensate each other's errors, as the record of the model says.
const (
	LeastFittedSQNR       = -3.0  // in dB, of a weight whose codes have 2 bits
	LeastFittedFineSQNR   = 1.0   // in dB, of another weight
	LeastFittedBlockSQNR  = -15.0 // in dB, of a block
	LeastFittedCosine     = -0.6  // of a block of 2 bits
	LeastFittedFineCosine = -0.2  // of another block
	MostFittedMisfit      = 15.0  // in dB
	LeastFittedBlockGain  = 0.15  // of a block that is like the weight, with data
	MostFittedStray       = 50.0  // of an element of a weight
	LeastGain             = 0.55  // of a weight: compare.WeightMatch.Gain
	MostGain              = 1.35  // of a weight
)

// LeastOwnSQNR is the limit in dB of a weight of a model that is as it was written. It is there for
// another float model: weights that have nothing in common have -3 dB.
const LeastOwnSQNR = -1.0

// Limits are the limits that a comparison used: those of Options or the defaults.
type Limits struct {
	SQNR              float64  `json:"sqnr_db"`              // least of a weight whose codes have 2 bits
	FineSQNR          float64  `json:"fine_sqnr_db"`         // least of another weight
	ByteSQNR          float64  `json:"byte_sqnr_db"`         // least of a weight whose codes have 8 bits
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
	Stray             float64  `json:"stray"`                // most of an element of a weight: compare.WeightMatch.Stray; 0: none
	Clipped           float64  `json:"clipped"`              // most of a weight of more than 2 bits: compare.WeightMatch.Clipped
	MaxError          *float64 `json:"max_error,omitempty"`
}

// limits returns the limits of the options for a model that is in a state, and whose codes have an origin.
func (o *Options) limits(state State, codes origin) Limits {
	const none = -errstat.Exact
	l := Limits{
		SQNR: LeastSQNR, FineSQNR: LeastFineSQNR, ByteSQNR: LeastByteSQNR, BlockSQNR: LeastBlockSQNR, FineBlockSQNR: LeastBlockSQNR, BlockCosine: -1, FineBlockCosine: -1,
		CoarseBlockSQNR: LeastCoarseSQNR, CoarseBlockCosine: LeastCoarseCosine, Misfit: MostMisfit, LeastBlockGain: LeastBlockGain, MostBlockGain: MostBlockGain,
		Stray: MostStray, Clipped: MostClipped, OutputSQNR: LeastOutputSQNR, Cosine: LeastCosine, MaxError: o.MaxError,
	}
	switch {
	case state == AsWritten:
		l.Stray, l.OutputSQNR, l.Cosine = 0, none, -1 // it is not broken; it may be poor
		l.SQNR, l.FineSQNR, l.Misfit, l.LeastBlockGain, l.MostBlockGain = LeastOwnSQNR, LeastOwnSQNR, errstat.Exact, 0, 0
		l.ByteSQNR, l.BlockSQNR, l.FineBlockSQNR, l.CoarseBlockSQNR, l.CoarseBlockCosine = LeastOwnSQNR, none, none, none, -1
	case codes.fitted:
		l.Stray = MostFittedStray
		l.SQNR, l.FineSQNR, l.Misfit, l.LeastBlockGain = LeastFittedSQNR, LeastFittedFineSQNR, MostFittedMisfit, LeastBlockGain
		l.BlockSQNR, l.FineBlockSQNR, l.CoarseBlockSQNR = LeastFittedBlockSQNR, LeastFittedBlockSQNR, LeastFittedBlockSQNR
		l.BlockCosine, l.FineBlockCosine, l.CoarseBlockCosine = LeastFittedCosine, LeastFittedFineCosine, LeastFittedCosine
		l.ByteSQNR, l.LeastGain, l.MostGain = LeastFittedFineSQNR, LeastGain, MostGain
		switch {
		case codes.scaled:
			l.LeastBlockGain, l.MostBlockGain = 0, 0
		case codes.data:
			l.LeastBlockGain = LeastFittedBlockGain
		}
	}
	if o.MinSQNR != nil {
		l.CoarseBlockSQNR = min(l.CoarseBlockSQNR, *o.MinSQNR)
		l.SQNR, l.FineSQNR, l.ByteSQNR, l.BlockSQNR, l.OutputSQNR = *o.MinSQNR, *o.MinSQNR, *o.MinSQNR, min(l.BlockSQNR, *o.MinSQNR), *o.MinSQNR
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
