// Package lua has the scripts of the lock, for servers that do not have the fairlock module.
package lua

import _ "embed" // for the scripts

// Each is a command of the module, with its arguments and replies; README.md beside says how to call them.
var (
	//go:embed acquire.lua
	Acquire string
	//go:embed release.lua
	Release string
	//go:embed renew.lua
	Renew string
	//go:embed cancel.lua
	Cancel string
	//go:embed info.lua
	Info string
)
