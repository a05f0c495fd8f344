// Package bodies has the operators that run graphs, and those of sequences, optionals and strings.
package bodies

import "onnxquant/internal/run/execute/op"

// Operators are the operators of this package.
var Operators = op.Table{
	"If":          {Inputs: 1, Attributes: "then_branch else_branch", Run: runIf},
	"Loop":        {Attributes: "body", Run: runLoop},
	"Scan":        {Attributes: "body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions", Run: runScan},
	"SequenceMap": {Inputs: 1, Attributes: "body", Run: runSequenceMap},

	"SequenceEmpty":      {Attributes: "dtype", Run: runSequenceConstruct},
	"SequenceConstruct":  {Inputs: 1, Run: runSequenceConstruct},
	"SequenceAt":         {Inputs: 2, Run: runSequenceAt},
	"SequenceErase":      {Inputs: 1, Run: runSequenceErase},
	"SequenceInsert":     {Inputs: 2, Run: runSequenceInsert},
	"SequenceLength":     {Inputs: 1, Run: runSequenceLength},
	"SplitToSequence":    {Inputs: 1, Attributes: "axis keepdims", Run: runSplitToSequence},
	"ConcatFromSequence": {Inputs: 1, Attributes: "axis new_axis", Run: runConcatFromSequence},
	"Optional":           {Attributes: "type", Run: runOptional},
	"OptionalHasElement": {Run: runOptionalHasElement},
	"OptionalGetElement": {Inputs: 1, Run: runOptional},

	"StringConcat":     {Inputs: 2, Run: runStringConcat},
	"StringSplit":      {Inputs: 1, Attributes: "delimiter maxsplit", Run: runStringSplit},
	"RegexFullMatch":   {Inputs: 1, Attributes: "pattern", Run: runRegexFullMatch},
	"StringNormalizer": {Inputs: 1, Attributes: "case_change_action is_case_sensitive locale stopwords", Run: runStringNormalizer},
}
