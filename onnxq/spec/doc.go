// Package spec has what can be asked for: formats, styles, targets, ranges, scale rules, and
// candidates of an analysis.
//
// All are values. Texts are parsed here once, at the edge, by functions such as [ParseFormat];
// the stages of a conversion get typed values. The tables are immutable.
package spec
