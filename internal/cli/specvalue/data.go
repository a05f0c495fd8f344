package specvalue

import "errors"

// DataPaths is the value of a flag that takes calibration data. If the flag is repeated, they add up.
type DataPaths struct{ To *[]string }

func (d DataPaths) Set(s string) error {
	if s == "" {
		return errors.New("want a file or folder of data, or self")
	}
	*d.To = append(*d.To, s)
	return nil
}

func (d DataPaths) String() string   { return "" }
func (d DataPaths) Type() string     { return "DATA" }
func (d DataPaths) Values() []string { return []string{"self"} }
func (d DataPaths) OrFile()          {}
func (d DataPaths) AddsUp()          {}
