module github.com/tallygate/tallygate/adapters/chi

go 1.26.5

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/tallygate/tallygate v0.0.0
)

replace github.com/tallygate/tallygate => ../..
