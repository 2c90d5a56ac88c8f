"""Which recipe is best for a budget: recipes x budgets x seeds -> scores with intervals."""
